"""Kernels of the sampler: the token that a row's draw falls on.

Weights, their sums and their order are the same on every machine (see `vector64` and `selection`),
and so is the token. Bounds that only decide how many tokens are looked at may differ.
"""

import math

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .scratch import BLOCK, GROUP, Scratch
from .selection import find_maxima, first_equal, gather, largest, logit_of, sort, token_of
from .vector64 import add_halves, four_lanes, no_sums, weight, weights8

NO_TOKEN = -1
_FIRST_NUCLEUS = 64  # tokens that make the nucleus of most rows
_SAMPLED_GROUPS = 256  # groups that the tail of a row is estimated from
_DEPTHS = 1024  # steps in which the tail of a row is counted; at most COUNTERS


@kernel
def choose(
    row: NDArray[np.float32],
    temperature: float,
    min_p: float,
    top_k: int,
    top_p: float,
    draw: float,
    scratch: Scratch,
) -> int:
    """The token drawn from a row; the most likely one at temperature 0.

    Args:
        row: float32 [n], no NaN; minus infinity rules a token out.
        temperature: 0, or what logits are divided by.
        min_p: weights below it become 0; the largest weight is 1.
        top_k: how many of the most likely tokens stay; 0 for all.
        top_p: of these, the fewest most likely stay whose weights reach this share.
        draw: in [0, 1).
        scratch: for n tokens.

    Returns:
        The token, NO_TOKEN where the largest logit is infinite.
    """
    greatest = find_maxima(row, scratch.maxima)
    if not np.isfinite(greatest):
        return NO_TOKEN
    if temperature == 0:
        return first_equal(row, scratch.maxima, greatest)
    top = np.float64(greatest)
    if 0 < top_k < row.size:
        count = largest(row, top_k, scratch)
        mass = top_p * _weigh(count, top, temperature, min_p, scratch)
    else:
        total = sum_weights(row, top, temperature, min_p, scratch.prefixes)
        if top_p == 1:
            return _draw_from_all(row, top, temperature, min_p, total, draw, scratch.prefixes)
        mass = top_p * total
        count = likeliest_until(row, mass, total, top, temperature, min_p, scratch)
    return _draw_from_nucleus(count, mass, draw, scratch)


@kernel
def likeliest(row: NDArray[np.float32], k: int, scratch: Scratch) -> tuple[float, float]:
    """Find the k most likely tokens, and what their log-probabilities are made of.

    Args:
        row: float32 [n], finite.
        k: how many.
        scratch: its candidates receive the tokens, the most likely first; all n if k is more.

    Returns:
        The largest logit, and the sum of all exp(logit - largest).
    """
    top = np.float64(find_maxima(row, scratch.maxima))
    if k > 0:
        for i in range(largest(row, k, scratch)):
            scratch.candidates[i] = token_of(scratch.candidates[i])
    return top, sum_weights(row, top, 1.0, 0.0, scratch.prefixes)


@kernel
def sum_weights(
    row: NDArray[np.float32],
    top: float,
    temperature: float,
    min_p: float,
    prefixes: NDArray[np.float64],
) -> float:
    """Sum of the weights of all tokens; `prefixes` receives it up to the end of each block.

    Four sums side by side do not wait for each other; their order is fixed all the same.
    Shapes: row [n], prefixes [n / BLOCK, rounded up, or more].
    """
    sums = no_sums()
    whole = row.size // 8 * 8
    for first in range(0, whole, BLOCK):
        for i in range(first, min(first + BLOCK, whole), 8):
            sums = add_halves(sums, weights8(row, i, top, temperature, min_p))
        a, b, c, d = four_lanes(sums)
        prefixes[first // BLOCK] = (a + b) + (c + d)
    a, b, c, d = four_lanes(sums)
    rest = whole
    if row.size - rest >= 4:
        a += weight(row[rest], top, temperature, min_p)
        b += weight(row[rest + 1], top, temperature, min_p)
        c += weight(row[rest + 2], top, temperature, min_p)
        d += weight(row[rest + 3], top, temperature, min_p)
        rest += 4
    for i in range(rest, row.size):
        a += weight(row[i], top, temperature, min_p)
    total: float = (a + b) + (c + d)
    prefixes[(row.size - 1) // BLOCK] = total
    return total


@kernel
def _draw_from_all(
    row: NDArray[np.float32],
    top: float,
    temperature: float,
    min_p: float,
    total: float,
    draw: float,
    prefixes: NDArray[np.float64],
) -> int:
    """The first token whose running sum, added up from token 0, exceeds draw * total.

    The sums of the blocks lead to the token's block. They were rounded otherwise than the running
    sum: where that could make a difference, the running sum is taken.
    """
    target = draw * total
    # Both sums are off by less than n roundings of 2**-53 times the total.
    doubt = total * (2.0 * row.size + 2.0 * BLOCK) * 2.0**-53
    block = 0
    while (block + 1) * BLOCK < row.size and prefixes[block] <= target:
        block += 1
    running = prefixes[block - 1] if block > 0 else 0.0
    for token in range(block * BLOCK, min((block + 1) * BLOCK, row.size)):
        before = running
        running += weight(row[token], top, temperature, min_p)
        if running > target:
            if before + doubt <= target and running - doubt > target:
                return token
            break
    return _walk(row, top, temperature, min_p, target)


@kernel
def _walk(
    row: NDArray[np.float32], top: float, temperature: float, min_p: float, target: float
) -> int:
    """The first token whose running sum exceeds `target`, else the last with a weight."""
    running, last = 0.0, 0
    for token in range(row.size):
        mass = weight(row[token], top, temperature, min_p)
        if mass > 0:
            running += mass
            last = token
            if running > target:
                break
    return last


@kernel
def _weigh(count: int, top: float, temperature: float, min_p: float, scratch: Scratch) -> float:
    """Write the weights of the first `count` candidates; their sum in their order."""
    weights = scratch.weights
    for i in range(count):
        weights[i] = weight(logit_of(scratch.candidates[i]), top, temperature, min_p)
    total = 0.0
    for i in range(count):
        total += weights[i]
    return total


@kernel
def likeliest_until(
    row: NDArray[np.float32],
    mass: float,
    total: float,
    top: float,
    temperature: float,
    min_p: float,
    scratch: Scratch,
) -> int:
    """Candidates in order, with their weights: enough for these to reach `mass`, or all there are.

    Most often a few are enough. If not, the tail of the row is estimated and left out.
    """
    count = largest(row, min(_FIRST_NUCLEUS, row.size), scratch)
    if _weigh(count, top, temperature, min_p, scratch) >= mass:
        return count
    stride = max(1, scratch.maxima.size // _SAMPLED_GROUPS)
    while True:
        threshold = _tail(row, total - mass, np.float32(top), temperature, stride, scratch)
        count = gather(row, threshold, scratch)
        sort(count, scratch)
        reached = _weigh(count, top, temperature, min_p, scratch)
        if reached >= mass or count == row.size:
            return count
        stride = 1 if stride > 1 else 0


@kernel
def _tail(
    row: NDArray[np.float32],
    mass: float,
    top: np.float32,
    temperature: float,
    stride: int,
    scratch: Scratch,
) -> np.float32:
    """A logit below which the weights of all tokens together are likely less than `mass`.

    Tokens of every stride-th group are counted by how far they lie below the top; each is taken
    to weigh what the first of its step could. A stride of 0 gives minus infinity.
    """
    if stride == 0 or not mass > 0:
        return np.float32(-np.inf)
    # Below this depth even n tokens weigh less than a tenth of the mass.
    depth = temperature * math.log(10 * row.size / mass)
    counts = scratch.counters[:_DEPTHS]
    _count_depths(row, top, np.float32(depth), stride, scratch.maxima, counts)
    left, deepest = 0.8 * mass, _DEPTHS
    while deepest > 0:
        first = (deepest - 1) * depth / _DEPTHS
        left -= stride * counts[deepest - 1] * math.exp(-first / temperature)
        if left < 0:
            break
        deepest -= 1
    return np.float32(top - deepest * depth / _DEPTHS)


@kernel
def _count_depths(
    row: NDArray[np.float32],
    top: np.float32,
    depth: np.float32,
    stride: int,
    maxima: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    """Count tokens of every stride-th group by their depth below the top, in equal steps."""
    counts[:] = 0
    steps = np.float32(counts.size) / depth
    places = np.empty(GROUP, np.int32)
    for first in range(0, row.size, stride * GROUP):
        if top - maxima[first // GROUP] < depth:
            length = min(GROUP, row.size - first)
            for i in range(length):
                step = (top - row[first + i]) * steps
                places[i] = np.int32(step if step < counts.size else counts.size)
            for i in range(length):
                if places[i] < counts.size:
                    counts[places[i]] += 1


@kernel
def _draw_from_nucleus(count: int, mass: float, draw: float, scratch: Scratch) -> int:
    """Draw from the first candidates whose weights reach `mass`, the one that does included."""
    running, size = 0.0, 0
    while size < count:
        running += scratch.weights[size]
        size += 1
        if running >= mass:
            break
    chosen = pick(scratch.weights[:size], draw * running)
    return token_of(scratch.candidates[chosen])


@kernel
def pick(weights: NDArray[np.float64], target: float) -> int:
    """The first index whose running sum exceeds ``target``; one with weight 0 is never picked.

    Args:
        weights: float64 [n], not negative.
        target: in [0, sum of the weights); rounding may put it at the sum, which picks the last
            index with a weight above 0.
    """
    total = 0.0
    last = 0
    for i in range(weights.size):
        if weights[i] > 0.0:
            total += weights[i]
            last = i
            if total > target:
                break
    return last

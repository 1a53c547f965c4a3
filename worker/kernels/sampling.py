"""Kernels of the sampler: the token that a row's draw falls on.

Weights, their sums and their order are the same on every machine, and so is the token. Estimates
only decide how much is looked at.
"""

import numpy as np
from numpy.typing import NDArray

from .estimate import DOUBT, can_estimate, estimate_weights
from .jit import kernel
from .nucleus import likeliest_until, nucleus_size, weigh
from .scratch import BLOCK, Scratch
from .selection import find_maxima, first_equal, largest, token_of
from .weights import Weighing, sum_weights, weight_of

NO_TOKEN = -1


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
    how = Weighing(np.float64(greatest), temperature, min_p)
    if top_p == 1 and not 0 < top_k < row.size:
        return _draw_from_all(row, how, draw, scratch)
    if 0 < top_k < row.size:
        count = largest(row, top_k, scratch)
        mass = top_p * weigh(count, how, scratch)
        size = nucleus_size(count, mass, mass, scratch)
    else:
        size = _nucleus(row, how, top_p, scratch)
    return _draw_from_nucleus(size, draw, scratch)


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
    return top, sum_weights(row, Weighing(top, 1.0, 0.0), scratch)


@kernel
def _nucleus(row: NDArray[np.float32], how: Weighing, top_p: float, scratch: Scratch) -> int:
    """Find the candidates whose weights reach a share of all; their number."""
    low, high, total = _mass(row, how, top_p, scratch)
    count = likeliest_until(row, high, total, how, scratch)
    size = nucleus_size(count, low, high, scratch)
    if size == 0 and low < high:
        mass = top_p * sum_weights(row, how, scratch)
        size = nucleus_size(count, mass, mass, scratch)
    # Rounding may keep the weights of all tokens from reaching what they sum to.
    return size if size > 0 else count


@kernel
def _mass(
    row: NDArray[np.float32], how: Weighing, top_p: float, scratch: Scratch
) -> tuple[float, float, float]:
    """Bounds of a share of all weights, equal if it had to be computed exactly; and their sum."""
    if can_estimate(how):
        total = estimate_weights(row, how, scratch)
        low, high = top_p * (1 - DOUBT) * total, top_p * (1 + DOUBT) * total
        if high < (1 - DOUBT) * total:
            return low, high, total
    total = sum_weights(row, how, scratch)
    return top_p * total, top_p * total, total


@kernel
def _draw_from_all(row: NDArray[np.float32], how: Weighing, draw: float, scratch: Scratch) -> int:
    """The first token whose running sum, added up from token 0, exceeds draw times the total."""
    if can_estimate(how):
        total = estimate_weights(row, how, scratch)
        token = locate(row, how, total, DOUBT * total, draw, scratch)
        if token != NO_TOKEN:
            return token
    total = sum_weights(row, how, scratch)
    token = locate(row, how, total, 0.0, draw, scratch)
    return token if token != NO_TOKEN else _walk(row, how, draw * total)


@kernel
def locate(
    row: NDArray[np.float32],
    how: Weighing,
    total: float,
    doubt: float,
    draw: float,
    scratch: Scratch,
) -> int:
    """The token of a draw from all, by way of the prefix sums; NO_TOKEN where they do not tell.

    Args:
        row: float32 [n], no NaN.
        how: the weights.
        total: their sum.
        doubt: how far total and prefixes may be off, but for rounding.
        draw: in [0, 1).
        scratch: with the prefixes.
    """
    target = draw * total
    # Prefixes and running sum are off by less than n roundings of 2**-53 times the total each.
    slack = doubt + total * (2.0 * row.size + 2.0 * BLOCK) * 2.0**-53
    block = 0
    while (block + 1) * BLOCK < row.size and scratch.prefixes[block] <= target:
        block += 1
    running = scratch.prefixes[block - 1] if block > 0 else 0.0
    for token in range(block * BLOCK, min((block + 1) * BLOCK, row.size)):
        before = running
        running += weight_of(row[token], how)
        if running > target:
            surely_not_before = before + slack <= draw * (total - doubt)
            surely_here = running - slack > draw * (total + doubt)
            return token if surely_not_before and surely_here else NO_TOKEN
    return NO_TOKEN


@kernel
def _walk(row: NDArray[np.float32], how: Weighing, target: float) -> int:
    """The first token whose running sum exceeds `target`, else the last with a weight."""
    running, last = 0.0, 0
    for token in range(row.size):
        mass = weight_of(row[token], how)
        if mass > 0:
            running += mass
            last = token
            if running > target:
                break
    return last


@kernel
def _draw_from_nucleus(size: int, draw: float, scratch: Scratch) -> int:
    """Draw from the first `size` candidates by their weights."""
    total = 0.0
    for i in range(size):
        total += scratch.weights[i]
    return token_of(scratch.candidates[pick(scratch.weights[:size], draw * total)])


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

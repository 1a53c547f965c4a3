"""The nucleus of a row: the fewest most likely tokens that have a share of the weights."""

import math

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .scratch import GROUP, Scratch
from .selection import gather, largest, logit_of, sort
from .weights import Weighing, weight_of

_FIRST = 64  # tokens that hold the nucleus of most rows
_SAMPLED_GROUPS = 256  # groups that the tail of a row is estimated from
_DEPTHS = 1024  # steps in which the tail of a row is counted; at most COUNTERS


@kernel
def weigh(count: int, how: Weighing, scratch: Scratch) -> float:
    """Write the weights of the first `count` candidates; their sum in their order."""
    for i in range(count):
        scratch.weights[i] = weight_of(logit_of(scratch.candidates[i]), how)
    total = 0.0
    for i in range(count):
        total += scratch.weights[i]
    return total


@kernel
def likeliest_until(
    row: NDArray[np.float32], mass: float, total: float, how: Weighing, scratch: Scratch
) -> int:
    """Put the most likely candidates in order: enough for their weights to reach `mass`, or all.

    Most often a few are enough. If not, the tail of the row is estimated and left out.

    Args:
        row: float32 [n], no NaN.
        mass: what to reach.
        total: sum of all weights, exactly or nearly.
        how: the weights.
        scratch: with the maxima of the row; receives candidates and weights.

    Returns:
        Number of candidates.
    """
    count = largest(row, min(_FIRST, row.size), scratch)
    if weigh(count, how, scratch) >= mass:
        return count
    stride = max(1, scratch.maxima.size // _SAMPLED_GROUPS)
    while True:
        threshold = _tail(row, total - mass, how, stride, scratch)
        count = gather(row, threshold, scratch)
        sort(count, scratch)
        if weigh(count, how, scratch) >= mass or count == row.size:
            return count
        stride = 1 if stride > 1 else 0


@kernel
def _tail(
    row: NDArray[np.float32], mass: float, how: Weighing, stride: int, scratch: Scratch
) -> np.float32:
    """A logit below which the weights of all tokens together are likely less than `mass`.

    Tokens of every stride-th group are counted by how far they lie below the top; each is taken
    to weigh what the first of its step could. A stride of 0 gives minus infinity.
    """
    if stride == 0 or not mass > 0:
        return np.float32(-np.inf)
    # Below this depth even n tokens weigh less than a tenth of the mass.
    depth = how.temperature * math.log(10 * row.size / mass)
    counts = scratch.counters[:_DEPTHS]
    _count_depths(row, np.float32(how.top), np.float32(depth), stride, scratch.maxima, counts)
    left, deepest = 0.8 * mass, _DEPTHS
    while deepest > 0:
        first = (deepest - 1) * depth / _DEPTHS
        left -= stride * counts[deepest - 1] * math.exp(-first / how.temperature)
        if left < 0:
            break
        deepest -= 1
    return np.float32(how.top - deepest * depth / _DEPTHS)


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
def nucleus_size(count: int, low: float, high: float, scratch: Scratch) -> int:
    """How many of the first `count` candidates are needed for their weights to reach a mass.

    The mass lies between `low` and `high`: 0 is given where that does not tell, or where it is
    not reached.
    """
    running = 0.0
    for i in range(count):
        running += scratch.weights[i]
        if running >= low:
            return i + 1 if running >= high else 0
    return 0

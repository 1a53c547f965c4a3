"""Weights of tokens, which are unnormalised probabilities, and their exact sum."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .scratch import BLOCK, GROUP, Scratch
from .vector64 import LOWEST, add_halves, four_lanes, no_sums, weight, weights8

_SURELY = 1e-9  # far more than what is added up here is rounded by


class Weighing(NamedTuple):
    """How a row's logits become weights: exp((logit - top) / temperature).

    Attributes:
        top: the row's largest logit.
        temperature: above 0.
        min_p: weights below it become 0; the largest weight is 1.
    """

    top: float
    temperature: float
    min_p: float


@kernel
def weight_of(logit: np.float32, how: Weighing) -> float:
    """The weight of one token."""
    value: float = weight(logit, how.top, how.temperature, how.min_p)
    return value


@kernel
def sum_weights(row: NDArray[np.float32], how: Weighing, scratch: Scratch) -> float:
    """The sum of all weights, always in the same order: four sums side by side.

    Args:
        row: float32 [n], no NaN.
        how: the weights.
        scratch: with the maxima of the row; its prefixes receive the sum up to the end of each
            block.
    """
    top, temperature, min_p = how
    lightest = _lightest(how)
    sums = no_sums()
    whole = row.size // 8 * 8
    for first in range(0, whole, GROUP):
        # A group whose weights are all 0 changes no sum.
        if scratch.maxima[first // GROUP] >= lightest:
            for i in range(first, min(first + GROUP, whole), 8):
                sums = add_halves(sums, weights8(row, i, top, temperature, min_p))
        a, b, c, d = four_lanes(sums)
        scratch.prefixes[first // BLOCK] = (a + b) + (c + d)
    a, b, c, d = four_lanes(sums)
    rest = whole
    if row.size - rest >= 4:
        a += weight_of(row[rest], how)
        b += weight_of(row[rest + 1], how)
        c += weight_of(row[rest + 2], how)
        d += weight_of(row[rest + 3], how)
        rest += 4
    for i in range(rest, row.size):
        a += weight_of(row[i], how)
    total: float = (a + b) + (c + d)
    scratch.prefixes[(row.size - 1) // BLOCK] = total
    return total


@kernel
def _lightest(how: Weighing) -> float:
    """A logit below which tokens surely have no weight."""
    exponent = LOWEST
    if how.min_p > 0:
        exponent = max(exponent, math.log(how.min_p))
    return how.top + exponent * how.temperature - _SURELY * (how.temperature + abs(how.top))

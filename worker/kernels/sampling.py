"""Kernels of the sampler: weights of all tokens, and the token that a draw falls on.

They use sums, products and bit operations alone, in a fixed order, so that every machine draws
the same token: the exponential of a mathematics library differs from machine to machine.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel

_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Adding it rounds to an integer and leaves that integer in the lowest bits.
_ROUND = 6755399441055744.0
_LOWEST = -700.0


@kernel
def _exp(x: float) -> float:
    """e**x for -700 <= x <= 0: 2**k times a Taylor series, to about one unit in the last place."""
    shifted = x * _LOG2_E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << np.int64(52))
    return np.int64(bits).view(np.float64)


@kernel
def softmax_weights(
    logits: NDArray[np.float32], temperature: float, min_p: float, weights: NDArray[np.float64]
) -> float:
    """Unnormalised probabilities: exp((logits - largest) / temperature).

    Args:
        logits: float32 [vocab], finite.
        temperature: above 0.
        min_p: weights below it become 0; the largest weight is 1.
        weights: float64 [vocab], receives the weights; what lies more than 700 below the largest
            is 0.

    Returns:
        The sum of the weights.
    """
    largest = logits[0]
    for i in range(logits.size):
        largest = max(largest, logits[i])
    top = np.float64(largest)
    for i in range(logits.size):
        x = (np.float64(logits[i]) - top) / temperature
        y = _exp(x if x > _LOWEST else _LOWEST)
        weights[i] = y if x > _LOWEST and y >= min_p else 0.0
    # Four sums side by side do not wait for each other; their order is fixed all the same.
    even = weights.size // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, even, 4):
        a += weights[i]
        b += weights[i + 1]
        c += weights[i + 2]
        d += weights[i + 3]
    for i in range(even, weights.size):
        a += weights[i]
    return (a + b) + (c + d)


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

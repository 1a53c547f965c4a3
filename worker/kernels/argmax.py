"""The most likely token of a row of logits, and whether the row is sound."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .vector import fma8, greatest8, load8, max8, splat8, sum8

_GROUP = 64  # values between two looks at the best so far


def best_token(logits: NDArray[np.float32]) -> tuple[int, float]:
    """Index and value of the largest logit: the lowest index among equals.

    Args:
        logits: float32 [vocab], C-contiguous, at least one.

    Returns:
        The index, -1 where a logit is NaN or infinite, and the logit.
    """
    assert logits.dtype == np.float32, logits.dtype
    assert logits.flags.c_contiguous, logits.strides
    assert logits.size > 0, "a row without logits"
    token, value = _best_token(logits)
    return int(token), float(value)


@kernel
def _best_token(logits: NDArray[np.float32]) -> tuple[int, np.float32]:
    """Shapes: logits [vocab]."""
    best, start = np.float32(-np.inf), 0
    # A finite number times 0 is 0, any other is NaN and stays in the sum.
    soundness = splat8(np.float32(0.0))
    zero = splat8(np.float32(0.0))
    whole = logits.size // _GROUP * _GROUP
    for i in range(0, whole, _GROUP):
        greatest = splat8(np.float32(-np.inf))
        for j in range(i, i + _GROUP, 8):
            values = load8(logits, j)
            greatest = max8(greatest, values)
            soundness = fma8(values, zero, soundness)
        largest = greatest8(greatest)
        if largest > best:
            best, start = largest, i
    rest = np.float32(0.0)
    for i in range(whole, logits.size):
        rest += logits[i] * np.float32(0.0)
        if logits[i] > best:
            best, start = logits[i], i
    if sum8(soundness) + rest != 0:
        return -1, best
    while logits[start] != best:
        start += 1
    return start, best

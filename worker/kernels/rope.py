"""Rotary position embedding (Su et al., 2021), in both layouts that checkpoints use."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .vector import (
    add8,
    evens8,
    load8,
    mul8,
    odds8,
    store8,
    sub8,
    zipped_high8,
    zipped_low8,
)


@kernel
def rotate_head(
    x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32], distance: int
) -> None:
    """Rotate the pairs of one head in place; shapes: x [2 n], cos and sin [n].

    Members of a pair lie side by side (2 i and 2 i + 1, ``llama`` files: `distance` 1), or half the
    rotated width apart (i and i + n, ``gemma3``: `distance` n).
    """
    if distance == 1:
        _rotate_pairs(x, cos, sin)
    else:
        _rotate_halves(x, cos, sin)


@kernel
def _rotate_pairs(
    x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> None:
    """Rotate 2 i and 2 i + 1."""
    whole = cos.size // 8 * 8
    for i in range(0, whole, 8):
        low, high = load8(x, 2 * i), load8(x, 2 * i + 8)
        a, b, c, s = evens8(low, high), odds8(low, high), load8(cos, i), load8(sin, i)
        first, second = sub8(mul8(a, c), mul8(b, s)), add8(mul8(b, c), mul8(a, s))
        store8(x, 2 * i, zipped_low8(first, second))
        store8(x, 2 * i + 8, zipped_high8(first, second))
    for i in range(whole, cos.size):
        first, second = x[2 * i], x[2 * i + 1]
        x[2 * i] = first * cos[i] - second * sin[i]
        x[2 * i + 1] = second * cos[i] + first * sin[i]


@kernel
def _rotate_halves(
    x: NDArray[np.float32], cos: NDArray[np.float32], sin: NDArray[np.float32]
) -> None:
    """Rotate i and i + n."""
    n = cos.size
    whole = n // 8 * 8
    for i in range(0, whole, 8):
        a, b, c, s = load8(x, i), load8(x, i + n), load8(cos, i), load8(sin, i)
        store8(x, i, sub8(mul8(a, c), mul8(b, s)))
        store8(x, i + n, add8(mul8(b, c), mul8(a, s)))
    for i in range(whole, n):
        first, second = x[i], x[i + n]
        x[i] = first * cos[i] - second * sin[i]
        x[i + n] = second * cos[i] + first * sin[i]

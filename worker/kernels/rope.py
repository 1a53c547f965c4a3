"""Rotary position embedding (Su et al., 2021), in both layouts that checkpoints use."""

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel


def rope(
    x: NDArray[np.float32],
    positions: NDArray[np.int32],
    cos: NDArray[np.float32],
    sin: NDArray[np.float32],
    heads: int,
    head_dim: int,
    distance: int,
) -> None:
    """Rotate the first `heads` heads of each row of x in place, by the angles of its position.

    Pair i of a head is rotated by angle i. Its members lie side by side (2 i and 2 i + 1, ``llama``
    files: `distance` 1), or half the rotated width apart (i and i + n, ``gemma3``: `distance` n).

    Args:
        x: [tokens, columns] float32, C-contiguous, starting with heads * head_dim columns.
        positions: [tokens] int32.
        cos: [length, n] float32, cosine of the angles of each position; 2 n values a head rotate.
        sin: [length, n] float32.
        heads: heads to rotate.
        head_dim: values of a head.
        distance: 1 or n.
    """
    tokens, columns = x.shape
    angles = cos.shape[1]
    assert sin.shape == cos.shape, (sin.shape, cos.shape)
    assert positions.shape == (tokens,), (positions.shape, tokens)
    assert heads * head_dim <= columns, (heads, head_dim, columns)
    assert 2 * angles <= head_dim, (angles, head_dim)
    assert distance in (1, angles), (distance, angles)
    shape = (columns, heads, head_dim, angles, distance)
    _rope(flat(x), positions, flat(cos), flat(sin), *shape)


@kernel
def _rope(
    x: NDArray[np.float32],
    positions: NDArray[np.int32],
    cos: NDArray[np.float32],
    sin: NDArray[np.float32],
    columns: int,
    heads: int,
    head_dim: int,
    angles: int,
    distance: int,
) -> None:
    """Shapes: x [tokens * columns], positions [tokens], cos and sin [length * angles]."""
    step = 2 if distance == 1 else 1
    for t in range(len(positions)):
        row = positions[t] * angles
        for h in range(heads):
            start = t * columns + h * head_dim
            for i in range(angles):
                j = start + i * step
                a, b = x[j], x[j + distance]
                c, s = cos[row + i], sin[row + i]
                x[j] = a * c - b * s
                x[j + distance] = b * c + a * s

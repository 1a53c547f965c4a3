"""Root mean square norm (Zhang and Sennrich, 2019)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .vector import add8, fma8, load8, load_part, mul8, splat8, store8, store_part, sum8


@kernel
def normalize_row(
    x: NDArray[np.float32], weight: NDArray[np.float32], out: NDArray[np.float32], eps: np.float32
) -> None:
    """Divide a vector by its root mean square and multiply it by `weight`.

    Shapes: x, weight and out [width]; out may be x. A vector whose squares overflow becomes NaN.
    """
    width = x.size
    mean = sum_of_squares(x, 0, width) / np.float32(width)
    # Squares that overflow would make zeros of the vector, and text of the zeros.
    root = np.sqrt(mean + eps) if mean < np.inf else np.float32(np.nan)
    scale = splat8(np.float32(1.0) / root)
    whole = width // 8 * 8
    for i in range(0, whole, 8):
        store8(out, i, mul8(mul8(load8(x, i), scale), load8(weight, i)))
    if whole < width:
        rest = width - whole
        scaled = mul8(load_part(x, whole, rest), scale)
        store_part(out, whole, rest, mul8(scaled, load_part(weight, whole, rest)))


@kernel
def sum_of_squares(x: NDArray[np.float32], start: int, width: int) -> Any:
    """Sum of x[start : start + width] squared, in sixteen partial sums folded by one tree."""
    a = b = splat8(np.float32(0.0))
    pairs = width // 16 * 16
    for i in range(0, pairs, 16):
        v, w = load8(x, start + i), load8(x, start + i + 8)
        a, b = fma8(v, v, a), fma8(w, w, b)
    for i in range(pairs, width, 8):
        v = load_part(x, start + i, min(8, width - i))
        a = fma8(v, v, a)
    return sum8(add8(a, b))

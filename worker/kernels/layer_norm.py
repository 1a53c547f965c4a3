"""Layer normalisation (Ba et al., 2016): the root mean square norm about the mean."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .rms_norm import normalize_row
from .vector import add8, load8, load_part, splat8, store8, store_part, sum8


@kernel
def layer_normalize_row(
    x: NDArray[np.float32],
    weight: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[np.float32],
    eps: np.float32,
) -> None:
    """Take off the mean, divide by the deviation, multiply by `weight` and add `bias`.

    Shapes: x, weight and out [width], bias [width] or [0] for none; out may be x. A vector whose
    squares overflow becomes NaN.
    """
    mean = _sum(x) / np.float32(x.size)
    _add(x, np.float32(-mean), out)
    normalize_row(out, weight, out, eps)
    if bias.size != 0:
        _add_vector(out, bias)


@kernel
def _sum(x: NDArray[np.float32]) -> Any:
    """Sum of x in eight partial sums folded by one tree."""
    total = splat8(np.float32(0.0))
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        total = add8(total, load8(x, i))
    if whole < x.size:
        total = add8(total, load_part(x, whole, x.size - whole))
    return sum8(total)


@kernel
def _add(x: NDArray[np.float32], number: np.float32, out: NDArray[np.float32]) -> None:
    """Write x + number to out."""
    numbers = splat8(number)
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(out, i, add8(load8(x, i), numbers))
    if whole < x.size:
        rest = x.size - whole
        store_part(out, whole, rest, add8(load_part(x, whole, rest), numbers))


@kernel
def _add_vector(x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    """Add y to x in place."""
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(x, i, add8(load8(x, i), load8(y, i)))
    if whole < x.size:
        rest = x.size - whole
        store_part(x, whole, rest, add8(load_part(x, whole, rest), load_part(y, whole, rest)))

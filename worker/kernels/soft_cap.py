"""The soft cap of logits: cap * tanh(x / cap)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel
from .vector import (
    add8,
    div8,
    exp8,
    load8,
    load_part,
    mul8,
    splat8,
    store8,
    store_part,
    sub8,
)


def soft_cap(x: NDArray[np.float32], cap: float) -> None:
    """Replace x by cap * tanh(x / cap), in place; infinity becomes NaN.

    Args:
        x: float32, C-contiguous.
        cap: bound of the results, above 0.
    """
    assert cap > 0, cap
    _soft_cap(flat(x), np.float32(cap))


@kernel
def capped8(x: Any, cap: Any) -> Any:
    """Compute cap * tanh(x / cap) in each lane: cap - 2 cap / (1 + e^(2 x / cap))."""
    power = exp8(mul8(x, splat8(np.float32(2.0) / cap)))
    double = splat8(np.float32(2.0) * cap)
    capped = sub8(splat8(cap), div8(double, add8(power, splat8(np.float32(1.0)))))
    # x - x is 0, and NaN for infinity: a number that overflowed is not hidden behind the cap.
    return add8(capped, sub8(x, x))


@kernel
def _soft_cap(x: NDArray[np.float32], cap: np.float32) -> None:
    """Cap all of x, of any length."""
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(x, i, capped8(load8(x, i), cap))
    if whole < x.size:
        rest = x.size - whole
        store_part(x, whole, rest, capped8(load_part(x, whole, rest), cap))

"""The soft cap of logits: cap * tanh(x / cap)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .native import float32s, real, task, word
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


@kernel
def capped8(x: Any, cap: Any) -> Any:
    """Compute cap * tanh(x / cap) in each lane: cap - 2 cap / (1 + e^(2 x / cap))."""
    power = exp8(mul8(x, splat8(np.float32(2.0) / cap)))
    double = splat8(np.float32(2.0) * cap)
    capped = sub8(splat8(cap), div8(double, add8(power, splat8(np.float32(1.0)))))
    # x - x is 0, and NaN for infinity: a number that overflowed is not hidden behind the cap.
    return add8(capped, sub8(x, x))


@kernel
def soft_cap_values(x: NDArray[np.float32], cap: np.float32) -> None:
    """Replace x, of any length, by cap * tanh(x / cap); infinity becomes NaN."""
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(x, i, capped8(load8(x, i), cap))
    if whole < x.size:
        rest = x.size - whole
        store_part(x, whole, rest, capped8(load_part(x, whole, rest), cap))


# Arguments of `soft_cap_task`, in this order.
X, X_STRIDE, WIDTH, CAP, ROWS_WORD, ROWS_AN_ITEM_WORD = range(6)


@task
def soft_cap_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Cap rows in place.

    Arguments: x and its stride in bytes; width; cap; header words with the number of rows and the
    rows of an item.
    """
    width, rows_an_item = word(arguments, WIDTH), word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        x = float32s(word(arguments, X) + row * word(arguments, X_STRIDE), width)
        soft_cap_values(x, real(arguments, CAP))

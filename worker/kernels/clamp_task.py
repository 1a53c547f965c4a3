"""The clamps of gpt-oss's gated activation, as a task of a step."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .native import float32s, real, task, word
from .vector import add8, load8, load_part, max8, mul8, splat8, store8, store_part

# Arguments of `clamp_task`, in this order.
X, X_STRIDE, WIDTH, LIMIT, ROWS_WORD, ROWS_AN_ITEM_WORD = range(6)


@task
def clamp_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Clamp gate and up of rows in place, see `clamp_gate_up`.

    Arguments: gate and up side by side, and their stride in bytes; width of either; limit; header
    words with the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        place = word(arguments, X) + row * word(arguments, X_STRIDE)
        gate, up = float32s(place, width), float32s(place + 4 * width, width)
        clamp_gate_up(gate, up, real(arguments, LIMIT))


@kernel
def clamp_gate_up(gate: NDArray[np.float32], up: NDArray[np.float32], limit: np.float32) -> None:
    """Make min(gate, limit) of the gate, and 1 + up, up between -limit and limit, of up.

    Shapes: gate and up [width]. NaN stays NaN.
    """
    whole = gate.size // 8 * 8
    for i in range(0, whole, 8):
        store8(gate, i, _at_most(load8(gate, i), limit))
        store8(up, i, _one_more(load8(up, i), limit))
    if whole < gate.size:
        rest = gate.size - whole
        store_part(gate, whole, rest, _at_most(load_part(gate, whole, rest), limit))
        store_part(up, whole, rest, _one_more(load_part(up, whole, rest), limit))


@kernel
def _at_most(x: Any, limit: np.float32) -> Any:
    """The smaller of x and `limit` in each lane."""
    minus = splat8(np.float32(-1.0))
    return mul8(max8(mul8(x, minus), splat8(-limit)), minus)


@kernel
def _one_more(x: Any, limit: np.float32) -> Any:
    """1 + x in each lane, x between -limit and limit."""
    bounded = _at_most(max8(x, splat8(-limit)), limit)
    return add8(bounded, splat8(np.float32(1.0)))

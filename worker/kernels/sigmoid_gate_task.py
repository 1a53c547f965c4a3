"""Rows scaled by a sigmoid, as a task of a step."""

from .jit import kernel
from .native import float32s, task, word
from .short_convolution import sigmoid8
from .vector import load8, load_part, mul8, store8, store_part

# Arguments of `sigmoid_gate_task`, in this order.
X, X_STRIDE, GATE, GATE_STRIDE, WIDTH, ROWS_WORD, ROWS_AN_ITEM_WORD = range(7)


@task
def sigmoid_gate_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Multiply rows by the sigmoid of others, in place.

    Arguments: x and its stride in bytes; the gate and its stride; width of both; header words with
    the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        _scale(
            word(arguments, X) + row * word(arguments, X_STRIDE),
            word(arguments, GATE) + row * word(arguments, GATE_STRIDE),
            width,
        )


@kernel
def _scale(row: int, gate: int, width: int) -> None:
    """Multiply `width` values at an address by the sigmoid of those at another."""
    x, g = float32s(row, width), float32s(gate, width)
    whole = width // 8 * 8
    for i in range(0, whole, 8):
        store8(x, i, mul8(load8(x, i), sigmoid8(load8(g, i))))
    if whole < width:
        rest = width - whole
        value = mul8(load_part(x, whole, rest), sigmoid8(load_part(g, whole, rest)))
        store_part(x, whole, rest, value)

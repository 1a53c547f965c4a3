"""Rows to the experts that were chosen for them, and back, as tasks of a step.

See `route_task` for pairs and their places. Items of `send_task` are runs of places, items of
`combine_task` runs of tokens.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .native import float32s, int32s, task, word
from .vector import add8, fma8, load8, load_part, splat8, store8, store_part

# Arguments of `send_task`, in this order.
S_X, S_X_STRIDE, S_OUT, S_OUT_STRIDE, S_SOURCES, S_ROWS_WORD, S_ROWS_AN_ITEM_WORD = range(7)


@task
def send_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Copy the token of each place there.

    Arguments: x (float32 rows or records) and its stride in bytes; out, with rows as long, and its
    stride; int32 [places], the token of each; header words with the number of places and the
    places of an item.
    """
    run = word(header, word(arguments, S_ROWS_AN_ITEM_WORD))
    end = min((item + 1) * run, word(header, word(arguments, S_ROWS_WORD)))
    sources, stride = int32s(word(arguments, S_SOURCES), end), word(arguments, S_X_STRIDE)
    for place in range(item * run, end):
        x = float32s(word(arguments, S_X) + sources[place] * stride, stride // 4)
        target = word(arguments, S_OUT) + place * word(arguments, S_OUT_STRIDE)
        out = float32s(target, stride // 4)
        for i in range(out.size):
            out[i] = x[i]


# Arguments of `combine_task`, in this order.
(
    C_Y,
    C_Y_STRIDE,
    C_OUT,
    C_OUT_STRIDE,
    C_WIDTH,
    C_USED,
    C_PLACES,
    C_WEIGHTS,
    C_ROWS_WORD,
    C_ROWS_AN_ITEM_WORD,
) = range(10)


@task
def combine_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Add to each token the weighted sum of what its experts gave, by rank.

    Arguments: y (float32 rows by place) and its stride in bytes; out (float32 rows by token) and
    its stride; width of both; experts of a token; int32 [tokens, used], the place of each pair;
    float32 [tokens, used], its weight; header words with the number of tokens and the tokens of
    an item.
    """
    used, width = word(arguments, C_USED), word(arguments, C_WIDTH)
    run = word(header, word(arguments, C_ROWS_AN_ITEM_WORD))
    end = min((item + 1) * run, word(header, word(arguments, C_ROWS_WORD)))
    for token in range(item * run, end):
        places = int32s(word(arguments, C_PLACES) + 4 * token * used, used)
        weights = float32s(word(arguments, C_WEIGHTS) + 4 * token * used, used)
        out = float32s(word(arguments, C_OUT) + token * word(arguments, C_OUT_STRIDE), width)
        _add_weighted(word(arguments, C_Y), word(arguments, C_Y_STRIDE), places, weights, out)


@kernel
def _add_weighted(
    y: int,
    stride: int,
    places: NDArray[np.int32],
    weights: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Add the weighted sum of some rows of y, in the order of `places`, to out."""
    for first in range(0, out.size, 8):
        count = min(8, out.size - first)
        total = splat8(np.float32(0.0))
        for rank in range(places.size):
            row = float32s(y + places[rank] * stride, out.size)
            value = load8(row, first) if count == 8 else load_part(row, first, count)
            total = fma8(value, splat8(weights[rank]), total)
        if count == 8:
            store8(out, first, add8(load8(out, first), total))
        else:
            store_part(out, first, count, add8(load_part(out, first, count), total))

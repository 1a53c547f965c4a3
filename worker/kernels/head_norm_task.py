"""Norms of vectors that lie side by side in a row, in place, as a task of a step.

For models that normalise queries and keys in another way than `rotate_and_write` does: over the
whole projection, about the mean, or with weights of each head's own.
"""

from .layer_norm import layer_normalize_row
from .native import float32s, real, task, word
from .rms_norm import normalize_row

# Arguments of `head_norm_task`, in this order.
(
    X,
    X_STRIDE,
    VECTORS,
    WIDTH,
    WEIGHT,
    WEIGHT_STRIDE,
    CENTRED,
    EPS,
    ROWS_WORD,
    ROWS_AN_ITEM_WORD,
) = range(10)


@task
def head_norm_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Normalise the vectors of rows.

    Arguments: the first vector of the first row, and the rows' stride in bytes; vectors of a row;
    their width; weight of the first vector, and bytes from it to the next one's, 0 for the same;
    whether they are normalised about their mean; eps; header words with the number of rows
    and the rows of an item.
    """
    width = word(arguments, WIDTH)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        start = word(arguments, X) + row * word(arguments, X_STRIDE)
        for v in range(word(arguments, VECTORS)):
            x = float32s(start + 4 * v * width, width)
            place = word(arguments, WEIGHT) + v * word(arguments, WEIGHT_STRIDE)
            weight = float32s(place, width)
            if word(arguments, CENTRED) != 0:
                layer_normalize_row(x, weight, float32s(place, 0), x, real(arguments, EPS))
            else:
                normalize_row(x, weight, x, real(arguments, EPS))

"""Norms and residual additions as tasks of a step.

Items are runs of tokens; the header says how many tokens there are and how many make an item.
"""

from .native import float32s, int32s, real, task, word
from .quantize import quantize_row
from .rms_norm import normalize_row

# Arguments of `norm_task`, in this order.
(
    X,
    X_STRIDE,
    ROW_INDEX,
    WEIGHT,
    WIDTH,
    EPS,
    OUT,
    OUT_STRIDE,
    RECORDS,
    RECORD_STRIDE,
    ROWS_WORD,
    ROWS_AN_ITEM_WORD,
) = range(12)


@task
def norm_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Normalise rows into float32 rows, and into quantised records where asked for.

    Arguments: x and its stride in bytes; address of the int32 index of the rows to take, or 0 for
    all in order; weight; width; eps; out and its stride; records (0 for none) and their stride;
    header words with the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    weight = float32s(word(arguments, WEIGHT), width)
    index, records = word(arguments, ROW_INDEX), word(arguments, RECORDS)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        source = row if index == 0 else int32s(index, last)[row]
        x = word(arguments, X) + source * word(arguments, X_STRIDE)
        out = word(arguments, OUT) + row * word(arguments, OUT_STRIDE)
        normalize_row(float32s(x, width), weight, float32s(out, width), real(arguments, EPS))
        if records != 0:
            quantize_row(out, records + row * word(arguments, RECORD_STRIDE), width)


# Arguments of `add_task`, in this order.
(
    A_X,
    A_X_STRIDE,
    A_Y,
    A_Y_STRIDE,
    A_WIDTH,
    A_WEIGHT,
    A_EPS,
    A_SCALE,
    A_ROWS_WORD,
    A_ROWS_AN_ITEM_WORD,
) = range(10)


@task
def add_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Add rows of scale * y to those of x; y is normalised in place before, if a weight is given.

    Arguments: x and its stride in bytes; y and its stride; width; weight of the norm or 0; eps;
    scale; header words with the number of rows and the rows of an item.
    """
    width, weight = word(arguments, A_WIDTH), word(arguments, A_WEIGHT)
    scale = real(arguments, A_SCALE)
    rows_an_item = word(header, word(arguments, A_ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, A_ROWS_WORD)))
    for row in range(first, last):
        x = float32s(word(arguments, A_X) + row * word(arguments, A_X_STRIDE), width)
        y = float32s(word(arguments, A_Y) + row * word(arguments, A_Y_STRIDE), width)
        if weight != 0:
            normalize_row(y, float32s(weight, width), y, real(arguments, A_EPS))
        for i in range(width):
            x[i] += scale * y[i]


# Arguments of `quantize_task`, in this order.
Q_X, Q_X_STRIDE, Q_WIDTH, Q_RECORDS, Q_RECORD_STRIDE, Q_ROWS_WORD, Q_ROWS_AN_ITEM_WORD = range(7)


@task
def quantize_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Quantise float32 rows into records.

    Arguments: x and its stride in bytes; width; records and their stride; header words with the
    number of rows and the rows of an item.
    """
    rows_an_item = word(header, word(arguments, Q_ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, Q_ROWS_WORD)))
    for row in range(first, last):
        x = word(arguments, Q_X) + row * word(arguments, Q_X_STRIDE)
        records = word(arguments, Q_RECORDS) + row * word(arguments, Q_RECORD_STRIDE)
        quantize_row(x, records, word(arguments, Q_WIDTH))

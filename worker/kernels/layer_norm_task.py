"""Layer normalisation of tokens as a task of a step; items as in `norm_task`."""

from .layer_norm import layer_normalize_row
from .native import float32s, int32s, real, task, word
from .quantize import quantize_row

# Arguments of `layer_norm_task`, in this order.
(
    X,
    X_STRIDE,
    ROW_INDEX,
    WEIGHT,
    BIAS,
    WIDTH,
    EPS,
    OUT,
    OUT_STRIDE,
    RECORDS,
    RECORD_STRIDE,
    ROWS_WORD,
    ROWS_AN_ITEM_WORD,
) = range(13)


@task
def layer_norm_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Normalise rows into float32 rows, and into quantised records where asked for.

    Arguments: x and its stride in bytes; address of the int32 index of the rows to take, or 0 for
    all in order; weight; bias or 0; width; eps; out and its stride; records (0 for none) and their
    stride; header words with the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    weight, shift = float32s(word(arguments, WEIGHT), width), word(arguments, BIAS)
    bias = float32s(shift, width if shift != 0 else 0)
    index, records = word(arguments, ROW_INDEX), word(arguments, RECORDS)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        source = row if index == 0 else int32s(index, last)[row]
        x = word(arguments, X) + source * word(arguments, X_STRIDE)
        out = word(arguments, OUT) + row * word(arguments, OUT_STRIDE)
        layer_normalize_row(
            float32s(x, width), weight, bias, float32s(out, width), real(arguments, EPS)
        )
        if records != 0:
            quantize_row(out, records + row * word(arguments, RECORD_STRIDE), width)

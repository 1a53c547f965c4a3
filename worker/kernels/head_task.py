"""The output head as a task: logits, and the best token of each row while they are at hand.

A row that takes its most likely token needs no logits in memory; they are written for the rows
that keep them only.
"""

from .argmax_task import BEST_BYTES, clear_best, tile_best
from .jit import kernel
from .native import call_native, float32s, real, task, uint8s, word
from .projection_task import (
    BLOCK_BYTES,
    BLOCKS,
    COLUMN,
    ITEM_WORDS,
    ROW_BLOCK,
    ROWS,
    SCRATCH_BYTES,
    TILES,
    WEIGHTS,
    tile_address,
    tile_width,
)
from .soft_cap import soft_cap_values

_ROW_BYTES = 4 * ROW_BLOCK

# Arguments, in this order; then ITEM_WORDS for each item, see `projection_task`.
(
    X,
    X_STRIDE,
    LOGITS,
    LOGITS_STRIDE,
    ROWS_WORD,
    KEEP,
    CAP,
    NUM_TOKENS,
    BESTS,
    PART_STRIDE,
    SCRATCH,
    ITEMS,
) = range(12)


@task
def head_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Multiply some row blocks of the head with all logit rows, and fold them into their bests.

    Arguments: x (records or float32 rows) and its stride in bytes; logits (float32 rows) and their
    stride; header word with the number of rows; address of a byte for each row, whether it keeps
    its logits; soft cap or 0; number of tokens, rows of the weight past them are padding; address
    of the bests [items][rows] and bytes from an item's to the next; scratch of SCRATCH_BYTES a
    thread. Then the items, see `projection_task`; their column is the first token.
    """
    entry = arguments + 8 * (ITEMS + item * ITEM_WORDS)
    rows = word(header, word(arguments, ROWS_WORD))
    scratch = word(arguments, SCRATCH) + thread * SCRATCH_BYTES
    bests = word(arguments, BESTS) + item * word(arguments, PART_STRIDE)
    row = 0
    while row < rows:
        width = tile_width(rows - row)
        tile = tile_address(word(entry, TILES), width)
        x = word(arguments, X) + row * word(arguments, X_STRIDE)
        for c in range(width):
            clear_best(bests + BEST_BYTES * (row + c))
        for first in range(0, word(entry, ROWS), ROW_BLOCK):
            weights = word(entry, WEIGHTS) + first // ROW_BLOCK * word(entry, BLOCK_BYTES)
            blocks = word(entry, BLOCKS)
            call_native(tile, (weights, x, word(arguments, X_STRIDE), scratch, _ROW_BYTES, blocks))
            cap = real(arguments, CAP)
            if cap > 0:
                soft_cap_values(float32s(scratch, width * ROW_BLOCK), cap)
            token = word(entry, COLUMN) + first
            _fold(arguments, scratch, row, width, token, word(entry, ROWS) - first, bests)
        row += width


@kernel
def _fold(
    arguments: int, scratch: int, row: int, width: int, token: int, left: int, bests: int
) -> None:
    """Take a tile of logits into the rows' bests, and into memory for rows that keep them."""
    valid = min(ROW_BLOCK, word(arguments, NUM_TOKENS) - token)
    stored = min(ROW_BLOCK, left)
    keep = uint8s(word(arguments, KEEP), row + width)
    for c in range(width):
        values = scratch + c * _ROW_BYTES
        if valid > 0:
            tile_best(values, token, valid, bests + BEST_BYTES * (row + c))
        if keep[row + c] != 0:
            place = word(arguments, LOGITS) + (row + c) * word(arguments, LOGITS_STRIDE)
            source, target = float32s(values, stored), float32s(place + 4 * token, stored)
            for i in range(stored):
                target[i] = source[i]

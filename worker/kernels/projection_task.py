"""Projections by tiles of integer arithmetic, as tasks of a step.

A tile (see `tile`) multiplies a row block, 16 rows of a packed weight, with a few tokens. An item
is a run of row blocks with all tokens of the step: a panel of tokens meets all row blocks of the
item before the next panel, so that panel and weights stay in the caches.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .gated_activation import gated
from .jit import kernel
from .memory import int32_at
from .native import Native, call_native, float32s, real, task, word
from .quantize import QUANT_BLOCK, RECORD_BYTES, quantize_block

ROW_BLOCK = 16
WIDEST_TILE = 8
SCRATCH_BYTES = 4 * WIDEST_TILE * 2 * QUANT_BLOCK  # of a thread, for either task
_ROW_BYTES = 4 * ROW_BLOCK

# Arguments of `projection_task`: its own, then ITEM_WORDS for each item.
X, X_STRIDE, OUT, OUT_STRIDE, TOKENS_WORD, ADDS, BIAS, SCRATCH, ITEMS = range(9)
WEIGHTS, BLOCK_BYTES, BLOCKS, TILES, COLUMN, ROWS = range(6)
ITEM_WORDS = 6


@kernel
def tile_width(left: int) -> int:
    """Columns of the tile to use next when `left` columns are left: 8, 4, 2 or 1."""
    if left >= 8:
        return 8
    return 4 if left >= 4 else (2 if left >= 2 else 1)


@kernel
def tile_address(tiles: int, width: int) -> int:
    """Address of the tile of `width` columns; `tiles` holds those of 1, 2, 4 and 8."""
    index = 0 if width == 1 else (1 if width == 2 else (2 if width == 4 else 3))
    return int(word(tiles, index))


@task
def projection_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Multiply some row blocks of a weight with all tokens.

    Arguments: x (records or float32 rows) and its stride in bytes; out (float32 rows) and its
    stride; header word with the number of tokens; whether to add to what is in out; bias by column
    or 0; scratch of SCRATCH_BYTES a thread. Then for each item: address of its first row
    block; bytes from one row block to the next; inner blocks of a row block; address of the tiles'
    addresses; first column of out; rows, the last row block may have fewer than 16.
    """
    entry = arguments + 8 * (ITEMS + item * ITEM_WORDS)
    tokens = word(header, word(arguments, TOKENS_WORD))
    weights, bias = word(entry, WEIGHTS), word(arguments, BIAS)
    multiply_rows(arguments, entry, weights, bias, 0, tokens, thread)


# Further words of an item of `expert_task`, and its arguments behind those of `projection_task`.
EXPERT_BYTES = ITEM_WORDS
EXPERT_ITEM_WORDS = ITEM_WORDS + 1
STARTS, ACTIVE, BIAS_BYTES, ITEMS_AN_EXPERT, EXPERT_ITEMS = range(ITEMS, ITEMS + 5)


@task
def expert_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Multiply some row blocks of an expert's weight with the tokens that chose it.

    Arguments: as of `projection_task` up to the scratch, x and out with a row a place (see
    `route_task`); int32 [experts + 1], the first place of each expert; int32, the experts that
    were chosen; bytes from an expert's bias to the next one's; items of an expert. Then these
    items, as of `projection_task` for the first expert, and bytes from an expert's weights to the
    next one's.
    """
    count = word(arguments, ITEMS_AN_EXPERT)
    expert = int32_at(word(arguments, ACTIVE), item // count)
    entry = arguments + 8 * (EXPERT_ITEMS + item % count * EXPERT_ITEM_WORDS)
    weights, bias = word(entry, WEIGHTS), word(arguments, BIAS)
    if bias != 0:
        bias += expert * word(arguments, BIAS_BYTES)
    first = int32_at(word(arguments, STARTS), expert)
    end = int32_at(word(arguments, STARTS), expert + 1)
    weights += expert * word(entry, EXPERT_BYTES)
    multiply_rows(arguments, entry, weights, bias, first, end, thread)


@kernel
def multiply_rows(
    arguments: int, entry: int, weights: int, bias: int, first: int, end: int, thread: int
) -> None:
    """Multiply an item's row blocks, which begin at `weights`, with the tokens first to end - 1."""
    rows, column = word(entry, ROWS), word(entry, COLUMN)
    out_stride = word(arguments, OUT_STRIDE)
    is_direct = word(arguments, ADDS) == 0 and bias == 0
    scratch = word(arguments, SCRATCH) + thread * SCRATCH_BYTES
    token = first
    while token < end:
        width = tile_width(end - token)
        tile = tile_address(word(entry, TILES), width)
        x = word(arguments, X) + token * word(arguments, X_STRIDE)
        for row in range(0, rows, ROW_BLOCK):
            block = weights + row // ROW_BLOCK * word(entry, BLOCK_BYTES)
            out = word(arguments, OUT) + token * out_stride + 4 * (column + row)
            whole = is_direct and rows - row >= ROW_BLOCK
            target, stride = (out, out_stride) if whole else (scratch, _ROW_BYTES)
            call_native(
                tile, (block, x, word(arguments, X_STRIDE), target, stride, word(entry, BLOCKS))
            )
            if not whole:
                count = min(ROW_BLOCK, rows - row)
                if bias != 0:
                    _add_bias(scratch, bias + 4 * (column + row), width, count)
                _put(scratch, out, out_stride, width, count, word(arguments, ADDS))
        token += width


@kernel
def _add_bias(scratch: int, bias: int, width: int, count: int) -> None:
    """Add `count` values of the bias to each of the tile's columns."""
    values = float32s(bias, count)
    for c in range(width):
        row = float32s(scratch + c * _ROW_BYTES, count)
        for i in range(count):
            row[i] += values[i]


@kernel
def _put(scratch: int, out: int, out_stride: int, width: int, count: int, adds: int) -> None:
    """Put or add `count` values of each of the tile's columns into the rows of out."""
    for c in range(width):
        row = float32s(scratch + c * _ROW_BYTES, count)
        target = float32s(out + c * out_stride, count)
        for i in range(count):
            target[i] = target[i] + row[i] if adds != 0 else row[i]


# Arguments of `gated_task`: its own, then G_ITEM_WORDS for each item.
(
    G_X,
    G_X_STRIDE,
    G_RECORDS,
    G_RECORD_STRIDE,
    G_TOKENS_WORD,
    G_LINEAR,
    G_CUBIC,
    G_SCRATCH,
    G_ITEMS,
) = range(9)
G_GATE, G_GATE_BYTES, G_GATE_TILES, G_UP, G_UP_BYTES, G_UP_TILES, G_BLOCKS, G_FIRST, G_GROUPS = (
    range(9)
)
G_ITEM_WORDS = 9


@task
def gated_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Multiply rows of gate and up with all tokens, and quantise activation(gate) * up.

    Arguments: x (records) and its stride in bytes; out (records) and its stride; header word
    with the number of tokens; the activation's two factors (see `gated_activation`); scratch of
    SCRATCH_BYTES a thread. Then for each item: gate's first row block, bytes from one to the next,
    its tiles; the same of up; inner blocks of a row block; first output in groups of 32; groups.
    """
    entry = arguments + 8 * (G_ITEMS + item * G_ITEM_WORDS)
    tokens = word(header, word(arguments, G_TOKENS_WORD))
    scratch = word(arguments, G_SCRATCH) + thread * SCRATCH_BYTES
    token = 0
    while token < tokens:
        width = tile_width(tokens - token)
        for group in range(word(entry, G_GROUPS)):
            _gate_and_up(arguments, entry, group, token, width, scratch)
            block = word(entry, G_FIRST) + group
            record = word(arguments, G_RECORDS) + RECORD_BYTES * block
            for c in range(width):
                values = scratch + c * 4 * 2 * QUANT_BLOCK
                gated(
                    float32s(values, 2 * QUANT_BLOCK),
                    float32s(values, QUANT_BLOCK),
                    1,
                    QUANT_BLOCK,
                    real(arguments, G_LINEAR),
                    real(arguments, G_CUBIC),
                )
                quantize_block(values, record + (token + c) * word(arguments, G_RECORD_STRIDE))
        token += width


@kernel
def _gate_and_up(
    arguments: int, entry: int, group: int, token: int, width: int, scratch: int
) -> None:
    """Write 32 values of gate, then 32 of up, for each token of a panel into scratch."""
    x_stride, blocks = word(arguments, G_X_STRIDE), word(entry, G_BLOCKS)
    x = word(arguments, G_X) + token * x_stride
    for half in range(2):
        weights, block_bytes = word(entry, 3 * half), word(entry, 3 * half + 1)
        tile = tile_address(word(entry, 3 * half + 2), width)
        for part in range(2):
            source = weights + (2 * group + part) * block_bytes
            target = scratch + 4 * (half * QUANT_BLOCK + part * ROW_BLOCK)
            call_native(tile, (source, x, x_stride, target, 8 * QUANT_BLOCK, blocks))


def tile_table(tiles: Mapping[int, Native]) -> NDArray[np.int64]:
    """The addresses that `tile_address` reads, of tiles by their columns."""
    return np.array([tiles[columns].address for columns in (1, 2, 4, 8)], np.int64)

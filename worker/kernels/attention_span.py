"""One span of attention, 64 positions, for all rows of an item: a native kernel.

The queries of a tile and the query heads that share a K/V head meet a span while it is in the
nearest cache, and as many of them as registers hold (a *panel*) share every load of a key or a
value (see `attention_tiles`).

Where a vector of slots or dimensions would cross the end of a block or of a head, and where many
queries would convert the same float16 numbers again and again, the span is copied to scratch memory
as float32.
"""

import numpy as np
from numpy.typing import NDArray

from .attention_tiles import SPAN, lanes
from .attention_words import (
    BASES,
    BLOCK_SIZE,
    CAP,
    COLUMNS,
    GROUP,
    HEAD_DIM,
    IS_HALF,
    KEYS,
    KV_HEADS,
    PANEL_HEADS,
    PANEL_SCORES,
    PANEL_TOKENS,
    PANEL_VALUES,
    POOL_SCORES,
    POOL_VALUES,
    QUERIES,
    SCALE,
    SCORES,
    STATE,
    SUMS,
    TOKEN_SCORES,
    TOKEN_VALUES,
    VALUES,
    WIDE_KEYS,
    WIDE_VALUES,
    WINDOW,
)
from .jit import kernel
from .memory import int32_at, put_word
from .native import Native, call_native, float32s, real, word
from .soft_cap import capped8
from .softmax_row import update_row
from .vector import load8, mul8, splat8, store8
from .widen import widen

_LANES = lanes()
_GROUPS = SPAN // _LANES
_DIRECT_QUERIES = 2  # float16 is converted in registers up to so many queries of an item


def _take_span(
    arguments: int,
    scratch: int,
    table: int,
    kv_head: int,
    position: int,
    tokens: int,
    low: int,
    span: int,
) -> None:
    """Take a span into the softmax of all rows; the first query stands at `position`."""
    half, dim = word(arguments, IS_HALF), word(arguments, HEAD_DIM)
    begin, last = span * SPAN, position + tokens - 1
    fits = word(arguments, BLOCK_SIZE) % _LANES == 0 and dim % _LANES == 0
    is_direct = fits and (half == 0 or tokens <= _DIRECT_QUERIES)
    if is_direct:
        _list_groups(arguments, scratch, table, kv_head, begin, low, last)
        size = 2 if half != 0 else 4
        key_step, value_step = word(arguments, BLOCK_SIZE) * size, dim * size
        scores, values = word(arguments, POOL_SCORES), word(arguments, POOL_VALUES)
    else:
        _widen_span(arguments, scratch, table, kv_head, begin, max(low, begin), last)
        key_step, value_step = np.int64(4 * SPAN), 4 * word(arguments, COLUMNS)
        scores, values = word(arguments, TOKEN_SCORES), word(arguments, TOKEN_VALUES)
    at_once = 1 if is_direct and half != 0 else word(arguments, PANEL_TOKENS)
    seen = position - begin + 1  # slots that the first query sees
    weigh, add = (scores, word(arguments, PANEL_SCORES)), (values, word(arguments, PANEL_VALUES))
    # All weights first: keys are in the nearest cache for that, then values and sums.
    for adds in range(2):
        tiles, step = (weigh, key_step) if adds == 0 else (add, value_step)
        _take_panels(arguments, scratch, tiles, step, tokens, at_once, seen, adds)


# Called by its address: LLVM optimises it once, not again within each function around it.
take_span = Native(_take_span, 8)


@kernel
def _take_panels(
    arguments: int,
    scratch: int,
    tiles: tuple[int, int],
    step: int,
    tokens: int,
    at_once: int,
    seen: int,
    adds: int,
) -> None:
    """Weigh a span for all rows or, where `adds` is 1, add its values: panel by panel.

    `tiles` are addresses of the tiles for the rows of a token and for those of `at_once` tokens.
    """
    group, heads = word(arguments, GROUP), word(arguments, PANEL_HEADS)
    t = 0
    while t < tokens:
        count = at_once if tokens - t >= at_once else 1
        tile = tiles[1] if count > 1 else tiles[0]
        for row in range(t * group, (t + count) * group, count * heads):
            if adds == 0:
                _weigh_panel(arguments, scratch, tile, step, row, count, seen + t)
            else:
                _add_panel(arguments, scratch, tile, tiles[0], step, row, count, seen + t)
        t += count


@kernel
def _list_groups(
    arguments: int, scratch: int, table: int, kv_head: int, begin: int, low: int, last: int
) -> None:
    """Put the addresses of the span's groups of keys, then of values, into scratch.

    Groups that no query sees get the address of another one's block: nothing there is used, but it
    can be read.
    """
    block_size, dim = word(arguments, BLOCK_SIZE), word(arguments, HEAD_DIM)
    size = 2 if word(arguments, IS_HALF) != 0 else 4
    bases = scratch + word(arguments, BASES)
    first_column, last_column = low // block_size, last // block_size
    for i in range(_GROUPS):
        slot = begin + i * _LANES
        column = slot // block_size
        offset = slot - column * block_size
        column = min(max(column, first_column), last_column)
        block = int32_at(table, column) * word(arguments, KV_HEADS) + kv_head
        head = block * block_size * dim
        put_word(bases, i, word(arguments, KEYS) + (head + offset) * size)
        put_word(bases, _GROUPS + i, word(arguments, VALUES) + (head + offset * dim) * size)


@kernel
def _widen_span(
    arguments: int, scratch: int, table: int, kv_head: int, begin: int, low: int, last: int
) -> None:
    """Copy keys and values of the positions low to last of a span to scratch, as float32."""
    block_size, dim = word(arguments, BLOCK_SIZE), word(arguments, HEAD_DIM)
    columns, half = word(arguments, COLUMNS), word(arguments, IS_HALF)
    size = 2 if half != 0 else 4
    keys, values = scratch + word(arguments, WIDE_KEYS), scratch + word(arguments, WIDE_VALUES)
    position, end = low, min(last + 1, begin + SPAN)
    while position < end:
        column = position // block_size
        offset = position - column * block_size
        count = min(block_size - offset, end - position)
        block = int32_at(table, column) * word(arguments, KV_HEADS) + kv_head
        head, slot = block * block_size * dim, position - begin
        start = word(arguments, KEYS) + (head + offset) * size
        widen(start, block_size * size, keys + 4 * slot, 4 * SPAN, dim, count, half)
        start = word(arguments, VALUES) + (head + offset * dim) * size
        widen(start, dim * size, values + 4 * slot * columns, 4 * columns, count, dim, half)
        position += count
    bases = scratch + word(arguments, BASES)
    for i in range(_GROUPS):
        put_word(bases, i, keys + 4 * _LANES * i)
        put_word(bases, _GROUPS + i, values + 4 * _LANES * columns * i)


@kernel
def _weigh_panel(
    arguments: int, scratch: int, tile: int, step: int, row: int, tokens: int, seen: int
) -> None:
    """Compute the weights of a span's slots for a panel of rows, and fit what is known of the rows.

    Args:
        arguments: of the task.
        scratch: of the thread.
        tile: address of the tile of Q K^T for the panel's rows.
        step: bytes between two dimensions of a group of keys.
        row: the panel's first row.
        tokens: tokens of the panel.
        seen: slots from the span's begin up to the first token's own; each token sees one more.
    """
    heads, window = word(arguments, PANEL_HEADS), word(arguments, WINDOW)
    top = min(SPAN, seen + tokens - 1)
    if _lowest(seen, window) >= top:
        return
    scores = scratch + word(arguments, SCORES) + 4 * SPAN * row
    queries, bases = scratch + word(arguments, QUERIES) + 8 * row, scratch + word(arguments, BASES)
    groups = (top + _LANES - 1) // _LANES
    call_native(tile, (queries, bases, step, word(arguments, HEAD_DIM), scores, np.int64(groups)))
    scale, cap = real(arguments, SCALE), real(arguments, CAP)
    if cap > 0:
        _cap_scores(float32s(scores, tokens * heads * SPAN), scale, cap)
        scale = np.float32(1.0)
    state, columns = scratch + word(arguments, STATE) + 8 * row, word(arguments, COLUMNS)
    sums = scratch + word(arguments, SUMS) + 4 * columns * row
    for i in range(tokens):
        low, high = _lowest(seen + i, window), min(SPAN, seen + i)
        if low < high:
            for r in range(i * heads, (i + 1) * heads):
                update_row(
                    scores + 4 * SPAN * r, low, high, scale, state + 8 * r,
                    sums + 4 * columns * r, columns,
                )  # fmt: skip


@kernel
def _add_panel(
    arguments: int,
    scratch: int,
    tile: int,
    single: int,
    step: int,
    row: int,
    tokens: int,
    seen: int,
) -> None:
    """Add the values of a span, weighted, to the sums of a panel of rows.

    Slots that all tokens see are added by the panel's tile of P V, those before and behind them
    token by token, by a tile for the rows of one: each row adds its own slots in order, and a NaN
    that it does not see stays out. `step` is the bytes between two slots of a group of values; see
    `_weigh_panel` for the others.
    """
    heads, window = word(arguments, PANEL_HEADS), word(arguments, WINDOW)
    low, high = _lowest(seen + tokens - 1, window), min(SPAN, seen)
    if tokens > 1:
        for i in range(tokens):
            own = _lowest(seen + i, window)
            stop = low if low < high else min(SPAN, seen + i)
            _add_values(arguments, scratch, single, step, row + i * heads, own, stop)
    _add_values(arguments, scratch, tile, step, row, low, high)
    if tokens > 1 and low < high:
        for i in range(tokens):
            stop = min(SPAN, seen + i)
            _add_values(arguments, scratch, single, step, row + i * heads, high, stop)


@kernel
def _cap_scores(scores: NDArray[np.float32], scale: np.float32, cap: np.float32) -> None:
    """Scale and cap all of the scores, flat; SPAN a row."""
    for s in range(0, scores.size, 8):
        store8(scores, s, capped8(mul8(load8(scores, s), splat8(scale)), cap))


@kernel
def _lowest(seen: int, window: int) -> int:
    """First slot of a span that is seen by the token behind which `seen` slots of it lie."""
    return max(0, seen - window) if window > 0 else 0


@kernel
def _add_values(
    arguments: int, scratch: int, tile: int, step: int, row: int, low: int, high: int
) -> None:
    """Add weight * value of slots low to high - 1, if any, to the rows of a tile from `row` on."""
    if low >= high:
        return
    columns, bases = word(arguments, COLUMNS), scratch + word(arguments, BASES) + 8 * _GROUPS
    weights = scratch + word(arguments, SCORES) + 4 * SPAN * row
    sums = scratch + word(arguments, SUMS) + 4 * columns * row
    call_native(tile, (weights, bases, step, np.int64(low), np.int64(high), sums, columns))

"""Attention over a paged K/V pool, without gathering or copying keys or values.

One kernel serves decoding and chunked prefill. An item of work is a sequence, a K/V head and a tile
of queries. It walks the sequence's spans of 64 positions in order; the query heads that share the
K/V head and the queries of a tile meet a span while it is in the nearest cache, and as many of
them as registers hold (a *panel*) share every load of a key or a value. Softmax is
computed as the spans come by (Milakov and Gimelshein, 2018; Dao et al., 2022), anew in each *range*
of 1,024 positions; ranges are merged in order.

A query's result depends on its position and on the keys before it, on nothing else: spans and
ranges are absolute, masks follow from positions, and every output is one chain of operations
whose order no tile, panel, block size or machine changes (see `attention_tiles`).

The pool holds the keys of a block as [kv_heads, head_dim, block_size] and its values as [kv_heads,
block_size, head_dim], float32 or float16. Where a vector of slots or dimensions would cross the end
of a block or of a head, and where many queries would convert the same float16 numbers again and
again, a span at a time is copied to scratch memory as float32.
"""

import numpy as np
from numpy.typing import NDArray

from .attention_tiles import SPAN, lanes
from .jit import kernel
from .memory import count_up, int32_at, put_word
from .native import call_native, float32s, real, task, word
from .soft_cap import capped8
from .softmax_row import NO_STATE, finish_row, merge_row, update_row
from .vector import load8, mul8, splat8, store8
from .widen import widen

QUERY_TILE = 16
"""Most queries of an item."""

RANGE = 1024
"""Positions whose softmax is computed by itself, in whole spans, before it is merged."""

MOST_PARTS = 1024
"""Most items of a step that are parts of another."""

# int32 numbers of an item, in this order, see `attention_arguments`.
SEQUENCE, KV_HEAD, FIRST, END, PART, PARTS, SLOT = range(7)
ITEM_WORDS = 7

_LANES = lanes()
_GROUPS = SPAN // _LANES
_LINE = 64  # bytes of a cache line
_DIRECT_QUERIES = 2  # float16 is converted in registers up to so many queries of an item

# Arguments of `attention_task`, in this order. Those from BASES on are offsets into a thread's
# scratch memory: addresses of the span's groups of keys and of values; addresses of the rows'
# queries; scores of a panel; largest scores and totals of the rows, and their sums, in the range
# and in the ranges before it; the span as float32.
(
    QKV,
    QKV_STRIDE,
    KEYS,
    VALUES,
    OUT,
    OUT_STRIDE,
    TABLE,
    TABLE_STRIDE_WORD,
    POSITIONS,
    ITEMS,
    KV_HEADS,
    BLOCK_SIZE,
    HEAD_DIM,
    COLUMNS,
    GROUP,
    PANEL_HEADS,
    PANEL_TOKENS,
    WINDOW,
    SCALE,
    CAP,
    IS_HALF,
    POOL_SCORES,
    POOL_VALUES,
    TOKEN_SCORES,
    TOKEN_VALUES,
    PANEL_SCORES,
    PANEL_VALUES,
    SCRATCH,
    SCRATCH_BYTES,
    PARTS_MEMORY,
    PART_BYTES,
    BASES,
    QUERIES,
    SCORES,
    STATE,
    SUMS,
    MERGED_STATE,
    MERGED_SUMS,
    WIDE_KEYS,
    WIDE_VALUES,
) = range(40)


@task
def attention_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Attend from a tile of queries of one sequence and K/V head, see `attention_arguments`."""
    place = word(arguments, ITEMS) + 4 * ITEM_WORDS * item
    stride = word(header, word(arguments, TABLE_STRIDE_WORD))
    table = word(arguments, TABLE) + 4 * stride * int32_at(place, SEQUENCE)
    scratch = word(arguments, SCRATCH) + thread * word(arguments, SCRATCH_BYTES)
    kv_head, first = int32_at(place, KV_HEAD), int32_at(place, FIRST)
    tokens, position = int32_at(place, END) - first, int32_at(word(arguments, POSITIONS), first)
    window, last = word(arguments, WINDOW), position + tokens - 1
    low = max(0, position - window + 1) if window > 0 else 0
    query = (table, kv_head, position, tokens, low)
    _list_queries(arguments, scratch, kv_head, first, tokens)
    parts = int32_at(place, PARTS)
    if parts == 1:
        result = _take_ranges(arguments, scratch, query, low // RANGE, last // RANGE)
    else:
        part = int32_at(place, PART)
        _take_range(arguments, scratch, query, low // RANGE + part)
        if not _is_last_part(arguments, scratch, int32_at(place, SLOT), part, parts):
            return  # another thread does the rest
        result = MERGED_STATE
    _finish(arguments, scratch, result, kv_head, first, tokens)


@kernel
def _take_ranges(
    arguments: int, scratch: int, query: tuple[int, int, int, int, int], first: int, last: int
) -> int:
    """Compute the softmax of all rows over ranges first to last; gives the word of its state."""
    if first == last:
        _take_range(arguments, scratch, query, first)
        return STATE
    rows = query[3] * word(arguments, GROUP)
    merged = scratch + word(arguments, MERGED_STATE)
    _clear(merged, rows)
    for number in range(first, last + 1):
        _take_range(arguments, scratch, query, number)
        sums = scratch + word(arguments, MERGED_SUMS)
        state, part = scratch + word(arguments, STATE), scratch + word(arguments, SUMS)
        _merge(merged, sums, state, part, word(arguments, COLUMNS), rows)
    return MERGED_STATE


@kernel
def _take_range(
    arguments: int, scratch: int, query: tuple[int, int, int, int, int], number: int
) -> None:
    """Compute the softmax of all rows over one range."""
    table, kv_head, position, tokens, low = query
    _clear(scratch + word(arguments, STATE), tokens * word(arguments, GROUP))
    begin = max(low // SPAN, number * (RANGE // SPAN))
    stop = min((position + tokens - 1) // SPAN + 1, (number + 1) * (RANGE // SPAN))
    for span in range(begin, stop):
        _take_span(arguments, scratch, table, kv_head, position, tokens, low, span)


@kernel
def _is_last_part(arguments: int, scratch: int, slot: int, part: int, parts: int) -> bool:
    """Hand in the softmax of a range; the last one to do so merges all in order."""
    rows, columns = word(arguments, GROUP), word(arguments, COLUMNS)
    size = word(arguments, PART_BYTES)
    memory = word(arguments, PARTS_MEMORY) + slot * size
    state = memory + part * size + _LINE
    sums = state + 8 * rows
    _clear(state, rows)
    own, own_sums = scratch + word(arguments, STATE), scratch + word(arguments, SUMS)
    _merge(state, sums, own, own_sums, columns, rows)
    if count_up(memory, 0) < parts - 1:
        return False
    put_word(memory, 0, 0)
    merged, merged_sums = (
        scratch + word(arguments, MERGED_STATE),
        scratch + word(arguments, MERGED_SUMS),
    )
    _clear(merged, rows)
    for other in range(parts):
        state = memory + other * size + _LINE
        _merge(merged, merged_sums, state, state + 8 * rows, columns, rows)
    return True


@kernel
def _list_queries(arguments: int, scratch: int, kv_head: int, first: int, tokens: int) -> None:
    """Put the addresses of the rows' queries into scratch: token by token, head by head."""
    group, head_bytes = word(arguments, GROUP), 4 * word(arguments, HEAD_DIM)
    queries = scratch + word(arguments, QUERIES)
    query = word(arguments, QKV) + kv_head * group * head_bytes
    for t in range(tokens):
        start = query + (first + t) * word(arguments, QKV_STRIDE)
        for g in range(group):
            put_word(queries, t * group + g, start + g * head_bytes)


@kernel
def _clear(state: int, rows: int) -> None:
    """Begin the softmax of each row."""
    for row in range(rows):
        put_word(state, row, NO_STATE)


@kernel
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
        steps = (word(arguments, BLOCK_SIZE) * size, dim * size)
        single = (word(arguments, POOL_SCORES), word(arguments, POOL_VALUES))
    else:
        _widen_span(arguments, scratch, table, kv_head, begin, max(low, begin), last)
        steps = (np.int64(4 * SPAN), 4 * word(arguments, COLUMNS))
        single = (word(arguments, TOKEN_SCORES), word(arguments, TOKEN_VALUES))
    panel = (word(arguments, PANEL_SCORES), word(arguments, PANEL_VALUES))
    step = 1 if is_direct and half != 0 else word(arguments, PANEL_TOKENS)
    group, heads = word(arguments, GROUP), word(arguments, PANEL_HEADS)
    t = 0
    while t < tokens:
        count = step if tokens - t >= step else 1
        seen = position + t - begin + 1  # slots that the panel's first token sees
        tiles = panel if count > 1 else single
        for row in range(t * group, (t + count) * group, count * heads):
            _take_panel(arguments, scratch, tiles, single, steps, row, count, seen)
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
def _take_panel(
    arguments: int,
    scratch: int,
    tiles: tuple[int, int],
    single: tuple[int, int],
    steps: tuple[int, int],
    row: int,
    tokens: int,
    seen: int,
) -> None:
    """Take a span into the softmax of a panel of rows.

    Args:
        arguments: of the task.
        scratch: of the thread.
        tiles: addresses of the tiles of Q K^T and P V for the panel's rows.
        single: the same for the rows of one token.
        steps: bytes between two dimensions of a group of keys, two slots of a group of values.
        row: the panel's first row.
        tokens: tokens of the panel.
        seen: slots from the span's begin up to the first token's own; each token sees one more.
    """
    heads, window = word(arguments, PANEL_HEADS), word(arguments, WINDOW)
    top = min(SPAN, seen + tokens - 1)
    if _lowest(seen, window) >= top:
        return
    bases, scores = scratch + word(arguments, BASES), scratch + word(arguments, SCORES)
    queries, groups = scratch + word(arguments, QUERIES) + 8 * row, (top + _LANES - 1) // _LANES
    call_native(
        tiles[0], (queries, bases, steps[0], word(arguments, HEAD_DIM), scores, np.int64(groups))
    )
    scale, cap = real(arguments, SCALE), real(arguments, CAP)
    if cap > 0:
        _cap_scores(float32s(scores, tokens * heads * SPAN), scale, cap)
        scale = np.float32(1.0)
    state, columns = scratch + word(arguments, STATE), word(arguments, COLUMNS)
    sums = scratch + word(arguments, SUMS)
    for i in range(tokens):
        low, high = _lowest(seen + i, window), min(SPAN, seen + i)
        if low < high:
            for r in range(i * heads, (i + 1) * heads):
                own = row + r
                update_row(
                    scores + 4 * SPAN * r, low, high, scale, state + 8 * own,
                    sums + 4 * columns * own, columns,
                )  # fmt: skip
    # Slots that all tokens see are added by the panel's tile, those before and behind them token by
    # token: each row adds its own slots in order, and a NaN that it does not see stays out.
    low, high = _lowest(seen + tokens - 1, window), min(SPAN, seen)
    if tokens > 1:
        for i in range(tokens):
            own = _lowest(seen + i, window)
            stop = low if low < high else min(SPAN, seen + i)
            _add_values(arguments, scratch, single[1], steps[1], row, i, own, stop)
    _add_values(arguments, scratch, tiles[1], steps[1], row, 0, low, high)
    if tokens > 1 and low < high:
        for i in range(tokens):
            stop = min(SPAN, seen + i)
            _add_values(arguments, scratch, single[1], steps[1], row, i, high, stop)


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
    arguments: int, scratch: int, tile: int, step: int, row: int, token: int, low: int, high: int
) -> None:
    """Add weight * value of slots low to high - 1; `row` is the panel's first one."""
    if low >= high:
        return
    first, columns = token * word(arguments, PANEL_HEADS), word(arguments, COLUMNS)
    weights = scratch + word(arguments, SCORES) + 4 * SPAN * first
    bases = scratch + word(arguments, BASES) + 8 * _GROUPS
    sums = scratch + word(arguments, SUMS) + 4 * columns * (row + first)
    call_native(tile, (weights, bases, step, np.int64(low), np.int64(high), sums, columns))


@kernel
def _merge(
    state: int, sums: int, other_state: int, other_sums: int, columns: int, rows: int
) -> None:
    """Take the softmax of one part of each row into that of the parts before it."""
    for row in range(rows):
        place = 4 * columns * row
        merge_row(state + 8 * row, sums + place, other_state + 8 * row, other_sums + place, columns)


@kernel
def _finish(
    arguments: int, scratch: int, state_word: int, kv_head: int, first: int, tokens: int
) -> None:
    """Divide each row's weighted sum by the total of its weights; the sums' word is the next."""
    group, head_bytes = word(arguments, GROUP), 4 * word(arguments, HEAD_DIM)
    state = scratch + word(arguments, state_word)
    sums = scratch + word(arguments, state_word + 1)
    out = word(arguments, OUT) + kv_head * group * head_bytes
    for t in range(tokens):
        start = out + (first + t) * word(arguments, OUT_STRIDE)
        for g in range(group):
            row = t * group + g
            finish_row(
                state + 8 * row, sums + 4 * word(arguments, COLUMNS) * row,
                start + g * head_bytes, word(arguments, HEAD_DIM),
            )  # fmt: skip

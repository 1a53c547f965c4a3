"""Attention over a paged K/V pool, without gathering or copying keys or values.

One kernel serves decoding and chunked prefill. An item of work is a sequence, a K/V head and a tile
of queries. It walks the sequence's spans of 64 positions in order (see `attention_span`). Softmax
is computed as the spans come by (Milakov and Gimelshein, 2018; Dao et al., 2022), anew in each
*range* of 1,024 positions; ranges are merged in order, and may be items of their own.

A query's result depends on its position and on the keys before it, on nothing else: spans and
ranges are absolute, masks follow from positions, and every output is one chain of operations
whose order no tile, panel, block size or machine changes (see `attention_tiles`).

The pool holds the keys of a block as [kv_heads, head_dim, block_size] and its values as [kv_heads,
block_size, head_dim], float32 or float16.
"""

import numpy as np

from .attention_tiles import SPAN
from .attention_words import (
    COLUMNS,
    GROUP,
    HEAD_DIM,
    ITEMS,
    MERGED_STATE,
    MERGED_SUMS,
    NO_SUMS,
    OUT,
    OUT_STRIDE,
    PART_BYTES,
    PARTS_MEMORY,
    POSITIONS,
    QKV,
    QKV_STRIDE,
    QUERIES,
    SCRATCH,
    SCRATCH_BYTES,
    SINKS,
    STATE,
    SUMS,
    TABLE,
    TABLE_STRIDE_WORD,
    TAKE_SPAN,
    WINDOW,
)
from .jit import kernel
from .memory import count_up, int32_at, put_word
from .native import call_native, task, word
from .softmax_row import NO_STATE, finish_row, merge_row

QUERY_TILE = 16
"""Most queries of an item."""

RANGE = 1024
"""Positions whose softmax is computed by itself, in whole spans, before it is merged."""

MOST_PARTS = 1024
"""Most items of a step that are parts of another."""

# int32 numbers of an item, in this order, see `attention_arguments`.
SEQUENCE, KV_HEAD, FIRST, END, PART, PARTS, SLOT = range(7)
ITEM_WORDS = 7

_LINE = 64  # bytes of a cache line


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
        call_native(
            word(arguments, TAKE_SPAN),
            (arguments, scratch, table, kv_head, position, tokens, low, np.int64(span)),
        )


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
    merged = scratch + word(arguments, MERGED_STATE)
    _clear(merged, rows)
    for other in range(parts):
        state = memory + other * size + _LINE
        sums = scratch + word(arguments, MERGED_SUMS)
        _merge(merged, sums, state, state + 8 * rows, columns, rows)
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
    """Divide each row's weighted sum by the total of its weights; the sums' word is the next.

    A head's sink (Xiao et al., 2023) is a score without a value: it takes weight from the others.
    """
    group, head_bytes = word(arguments, GROUP), 4 * word(arguments, HEAD_DIM)
    state = scratch + word(arguments, state_word)
    sums = scratch + word(arguments, state_word + 1)
    out = word(arguments, OUT) + kv_head * group * head_bytes
    sinks, columns = word(arguments, SINKS), word(arguments, COLUMNS)
    for t in range(tokens):
        start = out + (first + t) * word(arguments, OUT_STRIDE)
        for g in range(group):
            own_state, own_sums = state + 8 * (t * group + g), sums + 4 * columns * (t * group + g)
            if sinks != 0:
                sink = sinks + 8 * (kv_head * group + g)
                merge_row(own_state, own_sums, sink, word(arguments, NO_SUMS), columns)
            finish_row(own_state, own_sums, start + g * head_bytes, word(arguments, HEAD_DIM))

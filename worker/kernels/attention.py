"""Attention over a paged K/V pool, without gathering or copying keys or values.

One kernel serves decoding and chunked prefill. Work is cut into items of (sequence, K/V head, tile
of queries). An item walks the sequence's key blocks in order; the queries of a tile and the query
heads that share the K/V head meet a block while it is in the nearest cache. Softmax is
computed as the blocks come by (Milakov and Gimelshein, 2018; Dao et al., 2022).

A query's result depends on its position and on the keys before it, on nothing else: blocks are
absolute (block j holds positions j * block_size onwards) and so are the spans of blocks between two
updates of the softmax; masks follow from positions; and every query runs through the same
instructions whatever stands beside it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel
from .soft_cap import capped8
from .vector import (
    add8,
    exp8,
    first_lane,
    fma8,
    greatest8,
    keep_lanes,
    load8,
    load_part,
    max8,
    mul8,
    splat8,
    store8,
    store_part,
    sub8,
    sum8,
    sums_of_8,
)

QUERY_TILE = 16
SPAN = 64  # positions whose scores are held at once, in whole blocks


def attention(
    qkv: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    table: NDArray[np.int32],
    positions: NDArray[np.int32],
    items: NDArray[np.int32],
    window: int | None,
    scale: float,
    cap: float | None,
) -> None:
    """Attend from the queries of some work items.

    Args:
        qkv: [tokens, columns] float32, C-contiguous; a row starts with the query heads.
        keys: [blocks, kv_heads, block_size, head_dim] float32, C-contiguous: one layer of the pool,
            the batch's own keys already in it.
        values: the same shape.
        out: [tokens, heads * head_dim] float32, C-contiguous; written where the items say.
        table: [sequences, blocks] int32: the pool block that holds key block j of a sequence.
        positions: [tokens] int32.
        items: [items, 4] int32: sequence, K/V head, first token, token to stop before.
        window: a query sees itself and the window - 1 positions before it; None: all before it.
        scale: factor on query-key products.
        cap: soft cap of the scaled products; None: none.
    """
    _blocks, kv_heads, block_size, head_dim = keys.shape
    heads = out.shape[1] // head_dim
    assert values.shape == keys.shape, (values.shape, keys.shape)
    assert out.shape == (len(qkv), heads * head_dim), (out.shape, qkv.shape, keys.shape)
    assert heads % kv_heads == 0, (heads, kv_heads)
    _attention(
        flat(qkv),
        flat(keys),
        flat(values),
        flat(out),
        table,
        positions,
        items,
        qkv.shape[1],
        heads // kv_heads,
        kv_heads,
        block_size,
        head_dim,
        window or 0,
        np.float32(scale),
        np.float32(cap or 0.0),
    )


@kernel
def _attention(
    qkv: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    table: NDArray[np.int32],
    positions: NDArray[np.int32],
    items: NDArray[np.int32],
    columns: int,
    group: int,
    kv_heads: int,
    block_size: int,
    head_dim: int,
    window: int,
    scale: np.float32,
    cap: np.float32,
) -> None:
    """Arrays of floats are flat. A row of the state belongs to one query and one of its heads."""
    span = max(1, SPAN // block_size)  # blocks
    scores = np.empty(span * _padded(block_size), np.float32)
    bases = np.empty(span, np.int64)
    largest = np.empty(QUERY_TILE * group, np.float32)
    total = np.empty(QUERY_TILE * group, np.float32)
    out_columns = kv_heads * group * head_dim
    for item in range(len(items)):
        sequence, kv_head = items[item, 0], items[item, 1]
        first, last = items[item, 2], items[item, 3]
        head_column = kv_head * group * head_dim
        _begin(out, first, last, out_columns, head_column, group * head_dim, largest, total)
        start, end = 0, positions[last - 1] // (span * block_size)
        if window > 0:
            start = max(0, positions[first] - window + 1) // (span * block_size)
        for j in range(start, end + 1):
            for b in range(span):
                # Blocks past the sequence's end have no column; no query looks at them.
                column = min(j * span + b, table.shape[1] - 1)
                bases[b] = (table[sequence, column] * kv_heads + kv_head) * block_size * head_dim
            for t in range(first, last):
                # Slots low to high of this span are the ones that token t sees.
                seen = positions[t] - j * span * block_size
                high = min(span * block_size, seen + 1)
                low = max(0, seen - window + 1) if window > 0 else 0
                if low >= high:
                    continue
                for g in range(group):
                    column = head_column + g * head_dim
                    _absorb(
                        qkv, t * columns + column, keys, values, bases, low, high, block_size,
                        head_dim, scale, cap, out, t * out_columns + column, scores, largest,
                        total, (t - first) * group + g,
                    )  # fmt: skip
        _divide(out, first, last, out_columns, head_column, group, head_dim, total)


@kernel
def _padded(block_size: int) -> int:
    """Slots of a block in the buffer of scores: whole vectors."""
    return (block_size + 7) // 8 * 8


@kernel
def _begin(
    out: NDArray[np.float32],
    first: int,
    last: int,
    columns: int,
    column: int,
    width: int,
    largest: NDArray[np.float32],
    total: NDArray[np.float32],
) -> None:
    """Empty softmax: no score yet, the weighted sum of values is 0."""
    largest[:] = -np.inf
    total[:] = 0.0
    for t in range(first, last):
        start = t * columns + column
        out[start : start + width] = 0.0


@kernel
def _absorb(
    qkv: NDArray[np.float32],
    query: int,
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    bases: NDArray[np.int64],
    low: int,
    high: int,
    block_size: int,
    head_dim: int,
    scale: np.float32,
    cap: np.float32,
    out: NDArray[np.float32],
    target: int,
    scores: NDArray[np.float32],
    largest: NDArray[np.float32],
    total: NDArray[np.float32],
    row: int,
) -> None:
    """Take slots low to high of a span of blocks into the running softmax of one row."""
    padded = _padded(block_size)
    first_block, last_block = low // block_size, (high - 1) // block_size
    maxima = splat8(largest[row])
    for b in range(first_block, last_block + 1):
        start, stop = max(0, low - b * block_size), min(block_size, high - b * block_size)
        for s in range(0, padded, 8):
            score = _scores(qkv, query, keys, bases[b], s, block_size, head_dim)
            score = mul8(score, splat8(scale))
            if cap > 0:
                score = capped8(score, cap)
            # Slots that the query does not see may hold anything, NaN included.
            score = keep_lanes(score, start - s, stop - s, np.float32(-np.inf))
            store8(scores, b * padded + s, score)
            maxima = max8(maxima, score)
    greatest = greatest8(maxima)
    added = splat8(np.float32(0.0))
    for s in range(first_block * padded, (last_block + 1) * padded, 8):
        weight = exp8(sub8(load8(scores, s), splat8(greatest)))
        store8(scores, s, weight)
        added = add8(added, weight)
    shrink = first_lane(exp8(splat8(largest[row] - greatest)))
    total[row] = total[row] * shrink + sum8(added)
    largest[row] = greatest
    _add_values(values, bases, low, high, block_size, head_dim, scores, shrink, out, target)


@kernel
def _scores(
    qkv: NDArray[np.float32],
    query: int,
    keys: NDArray[np.float32],
    base: int,
    s: int,
    block_size: int,
    head_dim: int,
) -> Any:
    """Dot products of a query with slots s to s + 7; slots past the block repeat its last."""
    end = block_size - 1
    k0, k1 = base + min(s, end) * head_dim, base + min(s + 1, end) * head_dim
    k2, k3 = base + min(s + 2, end) * head_dim, base + min(s + 3, end) * head_dim
    k4, k5 = base + min(s + 4, end) * head_dim, base + min(s + 5, end) * head_dim
    k6, k7 = base + min(s + 6, end) * head_dim, base + min(s + 7, end) * head_dim
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = splat8(np.float32(0.0))
    whole = head_dim // 8 * 8
    for d in range(0, whole, 8):
        q = load8(qkv, query + d)
        a0, a1 = fma8(q, load8(keys, k0 + d), a0), fma8(q, load8(keys, k1 + d), a1)
        a2, a3 = fma8(q, load8(keys, k2 + d), a2), fma8(q, load8(keys, k3 + d), a3)
        a4, a5 = fma8(q, load8(keys, k4 + d), a4), fma8(q, load8(keys, k5 + d), a5)
        a6, a7 = fma8(q, load8(keys, k6 + d), a6), fma8(q, load8(keys, k7 + d), a7)
    if whole < head_dim:
        n, d = head_dim - whole, whole
        q = load_part(qkv, query + d, n)
        a0, a1 = fma8(q, load_part(keys, k0 + d, n), a0), fma8(q, load_part(keys, k1 + d, n), a1)
        a2, a3 = fma8(q, load_part(keys, k2 + d, n), a2), fma8(q, load_part(keys, k3 + d, n), a3)
        a4, a5 = fma8(q, load_part(keys, k4 + d, n), a4), fma8(q, load_part(keys, k5 + d, n), a5)
        a6, a7 = fma8(q, load_part(keys, k6 + d, n), a6), fma8(q, load_part(keys, k7 + d, n), a7)
    return sums_of_8(a0, a1, a2, a3, a4, a5, a6, a7)


@kernel
def _add_values(
    values: NDArray[np.float32],
    bases: NDArray[np.int64],
    low: int,
    high: int,
    block_size: int,
    head_dim: int,
    weights: NDArray[np.float32],
    shrink: np.float32,
    out: NDArray[np.float32],
    target: int,
) -> None:
    """Set out = out * shrink + sum over slots of weight * value, slots in order."""
    old, padded = splat8(shrink), _padded(block_size)
    first_block, last_block = low // block_size, (high - 1) // block_size
    wide = head_dim // 32 * 32
    for d in range(0, wide, 32):
        a0, a1 = mul8(load8(out, target + d), old), mul8(load8(out, target + d + 8), old)
        a2, a3 = mul8(load8(out, target + d + 16), old), mul8(load8(out, target + d + 24), old)
        for b in range(first_block, last_block + 1):
            start, stop = max(0, low - b * block_size), min(block_size, high - b * block_size)
            for s in range(start, stop):
                v = bases[b] + s * head_dim + d
                w = splat8(weights[b * padded + s])
                a0, a1 = fma8(w, load8(values, v), a0), fma8(w, load8(values, v + 8), a1)
                a2, a3 = fma8(w, load8(values, v + 16), a2), fma8(w, load8(values, v + 24), a3)
        store8(out, target + d, a0)
        store8(out, target + d + 8, a1)
        store8(out, target + d + 16, a2)
        store8(out, target + d + 24, a3)
    for d in range(wide, head_dim, 8):
        n = min(8, head_dim - d)
        a = mul8(load_part(out, target + d, n), old)
        for b in range(first_block, last_block + 1):
            start, stop = max(0, low - b * block_size), min(block_size, high - b * block_size)
            for s in range(start, stop):
                value = load_part(values, bases[b] + s * head_dim + d, n)
                a = fma8(splat8(weights[b * padded + s]), value, a)
        store_part(out, target + d, n, a)


@kernel
def _divide(
    out: NDArray[np.float32],
    first: int,
    last: int,
    columns: int,
    column: int,
    group: int,
    head_dim: int,
    total: NDArray[np.float32],
) -> None:
    """Divide each row's weighted sum by the sum of its weights."""
    for t in range(first, last):
        for g in range(group):
            share = np.float32(1.0) / total[(t - first) * group + g]
            start = t * columns + column + g * head_dim
            for d in range(start, start + head_dim):
                out[d] *= share

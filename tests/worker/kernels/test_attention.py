"""Paged attention: its values, and that a query's bits depend on its own keys alone."""

import threading

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import attention, run_items
from worker.kernels.attention import ITEM_WORDS, QUERY_TILE, attention_task
from worker.kernels.attention_arguments import (
    AttentionSinks,
    attention_arguments,
    attention_scratch,
)
from worker.kernels.attention_items import attention_items, most_attention_items
from worker.kernels.native import address_of

BOTH = pytest.mark.parametrize("dtype", ["float32", "float16"])


class _Paged:
    """Sequences with random keys and values in scattered blocks, the rest of the pool NaN."""

    def __init__(self, lengths, heads, kv_heads, dim, block_size, dtype="float32", seed=0):
        self.heads, self.kv_heads, self.dim, self.block_size = heads, kv_heads, dim, block_size
        counts = [-(-length // block_size) for length in lengths]
        order = np.random.default_rng(seed + block_size).permutation(sum(counts)).tolist()
        self.table = np.full((len(lengths), max(counts)), -1, np.int32)
        self.keys = np.full((sum(counts), kv_heads, dim, block_size), np.nan, dtype)
        self.values = np.full((sum(counts), kv_heads, block_size, dim), np.nan, dtype)
        self.sequences = []
        for s, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            random = np.random.default_rng([seed, s])
            self.table[s, :count] = [order.pop() for _ in range(count)]
            keys, values, queries = (
                random.standard_normal((length, n, dim), np.float32)
                for n in (kv_heads, kv_heads, heads)
            )
            keys, values = keys.astype(dtype), values.astype(dtype)
            for position in range(length):
                block, offset = self.table[s, position // block_size], position % block_size
                self.keys[block, :, :, offset] = keys[position]
                self.values[block, :, offset] = values[position]
            self.sequences.append((queries, keys.astype("f4"), values.astype("f4")))

    def batch(self, spans, window=None, threads=1):
        """qkv, positions and work items of (sequence, first, last position) spans."""
        tokens = sum(last - first for _, first, last in spans)
        qkv = np.full((tokens, (self.heads + 2 * self.kv_heads) * self.dim), np.nan, np.float32)
        queries = [self.sequences[s][0][first:last] for s, first, last in spans]
        qkv[:, : self.heads * self.dim] = np.concatenate(queries).reshape(tokens, -1)
        positions = np.concatenate([np.arange(a, b) for _, a, b in spans]).astype(np.int32)
        starts = np.cumsum([0] + [b - a for _, a, b in spans]).astype(np.int32)
        items = np.zeros(
            (most_attention_items(tokens, len(spans), self.kv_heads), ITEM_WORDS), "i4"
        )
        count = attention_items(starts, positions, self.kv_heads, window, threads, items)
        return qkv, positions, items[:count]

    def run(self, spans, window=None, cap=None, sinks=None):
        """Attention of spans in one batch: [T, heads * dim]."""
        qkv, positions, items = self.batch(spans, window)
        out = np.full((len(qkv), self.heads * self.dim), np.nan, np.float32)
        table = self.table[[s for s, _, _ in spans]]
        attention(
            qkv, self.keys, self.values, out, table, positions, items, window, self.dim**-0.5, cap,
            None if sinks is None else AttentionSinks.of(sinks, self.dim),
        )  # fmt: skip
        return out

    def expected(self, s, position, window=None, cap=None, sinks=None):
        """The naive result of one position: [heads * dim]."""
        queries, keys, values = self.sequences[s]
        group = self.heads // self.kv_heads
        return np.concatenate(
            [
                naive.attention(
                    queries[position, head],
                    keys[: position + 1, head // group],
                    values[: position + 1, head // group],
                    self.dim**-0.5,
                    window,
                    cap,
                    None if sinks is None else sinks[head],
                )
                for head in range(self.heads)
            ]
        )


@BOTH
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "block_size", "window", "cap"),
    [
        (4, 2, 16, 16, None, None),
        (9, 3, 64, 16, None, None),
        (2, 1, 32, 16, 16, None),
        (3, 3, 20, 8, 7, None),
        (4, 1, 40, 12, 5, 3.0),
        (2, 2, 256, 32, 33, None),
        (1, 1, 2, 5, None, 1.5),
        (2, 1, 16, 16, 1, None),
        (5, 1, 48, 64, 40, None),
        (12, 2, 80, 16, None, None),
        (7, 1, 1, 1, 64, None),
        (8, 1, 128, 48, 65, 20.0),
        (11, 1, 100, 3, None, None),
        (16, 1, 64, 128, 63, None),
    ],
)
def test_results_equal_the_naive_twin(heads, kv_heads, dim, block_size, window, cap, dtype):
    """Prefill, a chunk in the middle and a single decode step, in one ragged batch."""
    paged = _Paged([150, 33, 98], heads, kv_heads, dim, block_size, dtype)
    spans = [(0, 0, 150), (1, 20, 33), (2, 97, 98)]
    out = paged.run(spans, window, cap)
    tokens = [(s, position) for s, a, b in spans for position in range(a, b)]
    for row, (s, position) in enumerate(tokens):
        expected = paged.expected(s, position, window, cap)
        np.testing.assert_allclose(expected, out[row], atol=3e-6 if cap is None else 1e-5)


@BOTH
@pytest.mark.parametrize("window", [None, 100])
def test_sinks_take_weight_from_all_positions(window, dtype):
    """Each head's own score, far below the others, beside them, or far above."""
    paged = _Paged([150, 1100], 6, 2, 20, 16, dtype)
    sinks = np.array([-90, -1, 0, 1, 5, 90], np.float32)
    out = paged.run([(0, 0, 150), (1, 1090, 1100)], window, sinks=sinks)
    tokens = [(0, position) for position in range(150)] + [(1, p) for p in range(1090, 1100)]
    for row, (s, position) in enumerate(tokens):
        expected = paged.expected(s, position, window, sinks=sinks)
        np.testing.assert_allclose(expected, out[row], atol=3e-6)
    plain = paged.run([(0, 0, 150), (1, 1090, 1100)], window)
    heads = np.abs(plain - out).reshape(-1, 6, 20).max((0, 2))
    assert (heads[1:] > 0.1).all()


@BOTH
@pytest.mark.parametrize("window", [None, 1500])
def test_thousands_of_positions_equal_the_naive_twin(window, dtype):
    """Several ranges of 1,024 positions are merged; a tile lies across the border of two."""
    paged = _Paged([3100], 2, 1, 16, 16, dtype)
    out = paged.run([(0, 2040, 2060), (0, 3099, 3100)], window)
    for row, position in enumerate([*range(2040, 2060), 3099]):
        np.testing.assert_allclose(paged.expected(0, position, window), out[row], atol=3e-6)


@BOTH
@pytest.mark.parametrize("window", [None, 9, 16, 17, 64, 70])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 2, 24), (3, 1, 64), (1, 1, 32)])
def test_a_query_has_the_same_bits_however_prompts_are_cut(window, heads, kv_heads, dim, dtype):
    """All at once, in chunks of 1, 2, 5 and 16, and beside another sequence: equal bits."""
    paged = _Paged([150, 31], heads, kv_heads, dim, 16, dtype)
    whole = paged.run([(0, 0, 150)], window)
    for size in (1, 2, 5, 16):
        parts = [
            paged.run([(1, 3, 20), (0, a, min(a + size, 150))], window)[17:]
            for a in range(0, 150, size)
        ]
        assert np.array_equal(whole, np.concatenate(parts))


def test_a_query_has_the_same_bits_across_ranges():
    """Cut at, before and behind the border of two ranges of 1,024 positions."""
    paged = _Paged([1100], 2, 1, 16, 16)
    whole = paged.run([(0, 1000, 1100)])
    for cut in (1, 23, 24, 25, 60):
        parts = [paged.run([(0, 1000, 1000 + cut)]), paged.run([(0, 1000 + cut, 1100)])]
        assert np.array_equal(whole, np.concatenate(parts))


@BOTH
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("dim", [20, 64])
def test_the_block_size_changes_no_bit(window, dim, dtype):
    """Blocks of 1 to 64 tokens: spans do not know them."""
    spans = [(0, 0, 131), (1, 90, 91)]
    results = [
        _Paged([131, 91], 3, 1, dim, block_size, dtype).run(spans, window)
        for block_size in (1, 3, 8, 16, 20, 32, 64)
    ]
    for other in results[1:]:
        assert np.array_equal(results[0], other)


def test_a_group_shares_keys_and_changes_no_bit():
    """Groups of 1 to 8 heads, and of 12: each head has the bits it has alone."""
    for group in (*range(1, 9), 12):
        paged = _Paged([70], group, 1, 32, 16)
        together = paged.run([(0, 0, 70)]).reshape(70, group, 32)
        for head in range(group):
            alone = _Paged([70], 1, 1, 32, 16)
            alone.keys, alone.values, alone.table = paged.keys, paged.values, paged.table
            queries = paged.sequences[0][0][:, head : head + 1]
            alone.sequences = [(queries, None, None)]
            assert np.array_equal(together[:, head], alone.run([(0, 0, 70)]))


@BOTH
def test_threads_change_no_bit(dtype):
    """Two threads, each with scratch memory of its own, take items in turn."""
    paged = _Paged([80, 40], 6, 2, 32, 16, dtype)
    spans = [(0, 0, 80), (1, 39, 40)]
    qkv, positions, items = paged.batch(spans)
    wide = np.full((len(qkv), qkv.shape[1] + 7), np.nan, np.float32)
    wide[:, : qkv.shape[1]] = qkv
    out = np.full((len(qkv), paged.heads * paged.dim + 3), 7, np.float32)
    header = np.array([0, paged.table.shape[1]], np.int64)
    scratch = attention_scratch(2, paged.heads, paged.kv_heads, paged.dim)
    scratch.threads[:] = 255  # float32 NaN
    arguments = attention_arguments(
        wide, paged.keys, paged.values, out, paged.table, positions, items, scratch,
        heads=paged.heads, table_stride_word=1, window=None, scale=paged.dim**-0.5, cap=None,
    )  # fmt: skip

    def take(thread):
        for item in range(thread, len(items), 2):
            attention_task(address_of(header), address_of(arguments), item, thread)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(paged.run(spans), out[:, :-3])
    assert (out[:, -3:] == 7).all()


def test_items_may_have_fewer_queries_than_a_tile():
    """Whoever cuts the work may cut it anywhere."""
    paged = _Paged([60], 3, 1, 16, 16)
    qkv, positions, _ = paged.batch([(0, 0, 60)])
    whole = paged.run([(0, 0, 60)])
    for size in (3, 7, QUERY_TILE):
        cuts = [(0, 0, first, min(first + size, 60), 0, 1, 0) for first in range(0, 60, size)]
        items = np.array(cuts, np.int32)
        out = np.zeros_like(whole)
        attention(
            qkv, paged.keys, paged.values, out, paged.table, positions, items, None, 16**-0.5, None
        )
        assert np.array_equal(whole, out)


def test_run_items_takes_the_items_asked_for():
    """From the first up to the last; other tokens keep what they have."""
    paged = _Paged([40], 1, 1, 16, 16)
    qkv, positions, items = paged.batch([(0, 0, 40)])
    out = np.zeros((40, 16), np.float32)
    scratch, header = attention_scratch(1, 1, 1, 16), np.array([paged.table.shape[1]], np.int64)
    arguments = attention_arguments(
        qkv, paged.keys, paged.values, out, paged.table, positions, items, scratch,
        heads=1, table_stride_word=0, window=None, scale=0.25, cap=None,
    )  # fmt: skip
    run_items(attention_task.address, address_of(header), address_of(arguments), 1, 2)
    _, _, first, end, *_ = items[1]
    assert np.array_equal(np.arange(first, end), np.flatnonzero(out.any(1)))


@BOTH
@pytest.mark.parametrize("window", [None, 2000])
def test_ranges_as_items_of_their_own_change_no_bit(window, dtype):
    """Handed in in any order, by two threads; twice, since counters must be ready again."""
    paged = _Paged([3500, 1500], 6, 2, 32, 16, dtype)
    spans = [(0, 3499, 3500), (1, 1499, 1500)]
    qkv, positions, items = paged.batch(spans, window, threads=16)
    assert (items[:, 5] > 1).sum() == len(items) == 2 * ((3 if window else 4) + 2)
    out = np.zeros((2, paged.heads * paged.dim), np.float32)
    header = np.array([paged.table.shape[1]], np.int64)
    scratch = attention_scratch(2, paged.heads, paged.kv_heads, paged.dim)
    arguments = attention_arguments(
        qkv, paged.keys, paged.values, out, paged.table, positions, items, scratch,
        heads=paged.heads, table_stride_word=0, window=window, scale=paged.dim**-0.5, cap=None,
    )  # fmt: skip
    expected = paged.run(spans, window)
    for order in (range(len(items)), range(len(items))[::-1]):
        out[:] = 0
        for number, item in enumerate(order):
            attention_task(address_of(header), address_of(arguments), item, number % 2)
        assert np.array_equal(expected, out)
    assert (items.shape[1],) == (ITEM_WORDS,)


def test_threads_that_hand_in_parts_at_the_same_time_lose_none():
    """Two threads race for the items again and again: the last to hand in sees all others'."""
    paged = _Paged([4096], 2, 1, 16, 16)
    qkv, positions, items = paged.batch([(0, 4095, 4096)], threads=4)
    expected = paged.run([(0, 4095, 4096)])
    outs = np.zeros((300, *expected.shape), np.float32)
    header = np.array([paged.table.shape[1]], np.int64)
    scratch = attention_scratch(2, paged.heads, paged.kv_heads, paged.dim)
    arguments = [
        attention_arguments(
            qkv, paged.keys, paged.values, out, paged.table, positions, items, scratch,
            heads=2, table_stride_word=0, window=None, scale=paged.dim**-0.5, cap=None,
        )
        for out in outs
    ]  # fmt: skip
    barrier = threading.Barrier(2)

    def take(thread):
        for words in arguments:
            barrier.wait()
            for item in range(thread, len(items), 2):
                attention_task(address_of(header), address_of(words), item, thread)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(expected, out) for out in outs)


@BOTH
def test_a_freed_block_behind_the_window_is_not_read(dtype):
    """Blocks that no query sees may be gone from the table."""
    paged = _Paged([64], 2, 1, 16, 16, dtype)
    before = paged.run([(0, 60, 64)], window=20)
    paged.table[0, :2] = -1  # positions 0 to 31; position 60 sees 41 onwards
    assert np.array_equal(before, paged.run([(0, 60, 64)], window=20))


@BOTH
@pytest.mark.parametrize("block_size", [16, 5])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(bad, block_size, dtype):
    """NaN and infinity, in keys and in values: no silence, and nothing for earlier queries."""
    for where in ("keys", "values"):
        paged = _Paged([40], 3, 1, 16, block_size, dtype)
        block, offset = paged.table[0, 23 // block_size], 23 % block_size
        if where == "keys":
            paged.keys[block, 0, :, offset] = bad
        else:
            paged.values[block, 0, offset] = bad
        out = paged.run([(0, 0, 40)])
        assert np.isfinite(out[:23]).all()
        assert not np.isfinite(out[23:]).any()


def test_a_key_that_is_infinitely_unlike_is_not_passed_over():
    """Minus infinity among the scores would be a weight of 0, and the overflow forgotten."""
    paged = _Paged([40], 1, 1, 1, 16, "float16")
    paged.sequences[0][0][:] = 1
    paged.keys[paged.table[0, 0], 0, 0, 5] = -np.inf
    out = paged.run([(0, 0, 40)])
    assert np.isfinite(out[:5]).all()
    assert np.isnan(out[5:]).all()


def test_scores_far_apart_give_all_weight_to_the_largest():
    """Differences beyond the range of exp: no NaN, and the value of the best key."""
    paged = _Paged([130], 1, 1, 16, 16)
    paged.keys[:] = -1e6
    paged.keys[paged.table[0, 4], 0, :, 6] = 1e6  # position 70
    paged.sequences[0][0][:] = 1
    out = paged.run([(0, 100, 130)])
    expected = paged.values[paged.table[0, 4], 0, 6]
    assert np.array_equal(np.tile(expected, (30, 1)), out)

"""Paged attention: its values, and that a query's bits depend on its own keys alone."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from worker.kernels.attention import attention
from worker.models.step import work_items


class _Paged:
    """Sequences with random keys and values in scattered blocks, the rest of the pool NaN."""

    def __init__(self, lengths, heads, kv_heads, dim, block_size, seed=0):
        random = np.random.default_rng(seed)
        self.heads, self.kv_heads, self.dim, self.block_size = heads, kv_heads, dim, block_size
        counts = [-(-length // block_size) for length in lengths]
        order = random.permutation(sum(counts)).tolist()
        self.table = np.full((len(lengths), max(counts)), -1, np.int32)
        shape = (sum(counts), kv_heads, block_size, dim)
        self.keys = np.full(shape, np.nan, np.float32)
        self.values = np.full(shape, np.nan, np.float32)
        self.sequences = []
        for s, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            self.table[s, :count] = [order.pop() for _ in range(count)]
            keys, values, queries = (
                random.standard_normal((length, n, dim), np.float32)
                for n in (kv_heads, kv_heads, heads)
            )
            for position in range(length):
                block, offset = self.table[s, position // block_size], position % block_size
                self.keys[block, :, offset] = keys[position]
                self.values[block, :, offset] = values[position]
            self.sequences.append((queries, keys, values))

    def run(self, spans, window=None, cap=None, seed=1):
        """Attention of (sequence, first, last position) spans in one batch: [T, heads * dim]."""
        tokens = sum(last - first for _, first, last in spans)
        qkv = np.random.default_rng(seed).standard_normal(
            (tokens, (self.heads + 2 * self.kv_heads) * self.dim), np.float32
        )
        queries = [self.sequences[s][0][first:last] for s, first, last in spans]
        qkv[:, : self.heads * self.dim] = np.concatenate(queries).reshape(tokens, -1)
        positions = np.concatenate([np.arange(a, b) for _, a, b in spans]).astype(np.int32)
        starts = np.cumsum([0] + [b - a for _, a, b in spans]).astype(np.int32)
        out = np.full((tokens, self.heads * self.dim), np.nan, np.float32)
        table = self.table[[s for s, _, _ in spans]]
        items = work_items(starts, self.kv_heads)
        scale = self.dim**-0.5
        attention(
            qkv, self.keys, self.values, out, table, positions, items, window, scale, cap
        )  # fmt: skip
        return out

    def expected(self, s, position, window=None, cap=None):
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
                )
                for head in range(self.heads)
            ]
        )


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
    ],
)
def test_results_equal_the_naive_twin(heads, kv_heads, dim, block_size, window, cap):
    """Prefill, a chunk in the middle and a single decode step, in one ragged batch."""
    paged = _Paged([70, 33, 18], heads, kv_heads, dim, block_size)
    spans = [(0, 0, 70), (1, 20, 33), (2, 17, 18)]
    out = paged.run(spans, window, cap)
    tokens = [(s, position) for s, a, b in spans for position in range(a, b)]
    for row, (s, position) in enumerate(tokens):
        expected = paged.expected(s, position, window, cap)
        np.testing.assert_allclose(expected, out[row], atol=3e-6)


@pytest.mark.parametrize("window", [None, 9, 16, 17])
def test_a_query_has_the_same_bits_however_prompts_are_cut(window):
    """All at once, in chunks of 1, 5 and 16, and beside another sequence: equal bits."""
    paged = _Paged([50, 31], 4, 2, 24, 16)
    whole = paged.run([(0, 0, 50)], window)
    for size in (1, 5, 16):
        parts = [
            paged.run([(1, 3, 20), (0, a, min(a + size, 50))], window)[17:]
            for a in range(0, 50, size)
        ]
        assert np.array_equal(whole, np.concatenate(parts))


def test_a_freed_block_behind_the_window_is_not_read():
    """Blocks that no query sees may be gone from the table."""
    paged = _Paged([64], 2, 1, 16, 16)
    before = paged.run([(0, 60, 64)], window=20)
    paged.table[0, :2] = -1  # positions 0 to 31; position 60 sees 41 onwards
    assert np.array_equal(before, paged.run([(0, 60, 64)], window=20))


def test_nan_among_the_keys_seen_reaches_the_result():
    """A NaN that a query does see must not vanish in the softmax."""
    paged = _Paged([20], 2, 1, 16, 16)
    paged.keys[paged.table[0, 0], 0, 3] = np.nan
    out = paged.run([(0, 0, 20)])
    assert not np.isnan(out[:3]).any()
    assert np.isnan(out[3:]).all()

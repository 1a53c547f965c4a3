"""KVPool: all groups at once, windows, and random use."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvpool import KVPool, LayerGroup, PoolLimits

FULL = LayerGroup("full", (0,), num_kv_heads=1, head_dim=2, window=None)
WINDOW = LayerGroup("window", (1,), num_kv_heads=1, head_dim=2, window=6)
LIMITS = PoolLimits(block_size=4, max_num_seqs=3, max_num_batched_tokens=8, max_model_len=64)


def _pool(full=8, window=8):
    return KVPool((FULL, WINDOW), (full, window), LIMITS)


def test_allocate_extends_all_groups():
    """Tokens get a block of each group."""
    pool = _pool()
    tables = pool.new_tables()
    assert pool.allocate(tables, 5) is True
    assert [table.blocks.tolist() for table in tables] == [[0, 1], [0, 1]]
    assert pool.allocate(tables, 8) is True
    assert pool.num_free == (6, 6)


@pytest.mark.parametrize("sizes", [(2, 8), (8, 2)])
def test_allocate_is_all_or_nothing(sizes):
    """When one group has too few blocks, no group gives any."""
    pool = _pool(*sizes)
    tables = pool.new_tables()
    assert pool.allocate(tables, 9) is False
    assert pool.num_free == sizes
    assert [table.num_columns for table in tables] == [0, 0]


def test_window_group_gives_back_what_nobody_attends_to():
    """Window 6 at position 13 reaches back to 8: blocks 0 and 1 go, in that group alone."""
    pool = _pool()
    tables = pool.new_tables()
    pool.allocate(tables, 13)
    pool.free_outside_window(tables, 12)
    assert [table.blocks.tolist() for table in tables] == [[0, 1, 2, 3], [-1, 1, 2, 3]]
    pool.free_outside_window(tables, 13)
    assert [table.blocks.tolist() for table in tables] == [[0, 1, 2, 3], [-1, -1, 2, 3]]
    assert pool.num_free == (4, 6)


def test_free_returns_everything_and_the_same_blocks_come_again():
    """A preempted sequence that comes back alone gets its blocks in the same order."""
    pool = _pool()
    tables = pool.new_tables()
    pool.allocate(tables, 13)
    before = [table.blocks.tolist() for table in tables]
    pool.free(tables)
    assert pool.num_free == (8, 8)
    pool.allocate(tables, 13)
    assert [table.blocks.tolist() for table in tables] == before


def test_usage_counts_blocks_and_bytes():
    """Used, total and peak are over all groups, in blocks and bytes."""
    pool = _pool(8, 6)
    tables = pool.new_tables()
    pool.allocate(tables, 9)
    pool.free(tables)
    pool.allocate(tables, 1)
    usage = pool.usage
    assert (usage.used, usage.total, usage.peak) == (2, 14, 6)
    assert (usage.peak_bytes, usage.total_bytes) == (6 * 64, 14 * 64)


def test_longest_sequence_is_bounded_by_the_full_group():
    """What one sequence can reach follows from the scarcest group."""
    assert _pool(8, 5).max_sequence_tokens == 32
    assert _pool(100, 3).max_sequence_tokens == 64
    assert _pool(100, 2).max_sequence_tokens == 8


@pytest.mark.parametrize("window_blocks", [3, 4, 5])
def test_sequence_alone_fits_in_chunks_of_the_length_given(window_blocks):
    """Up to the longest sequence there is always a chunk, it fits, and no longer one does."""
    pool = _pool(16, window_blocks)
    tables, length = pool.new_tables(), 0
    while length < pool.max_sequence_tokens:
        pool.free_outside_window(tables, length)
        chunk = pool.longest_chunk(length)
        assert chunk >= 1
        assert pool.allocate(tables, length + chunk + 1) is False
        assert pool.allocate(tables, length + chunk) is True
        length += chunk
    assert length == 64


class PoolMachine(RuleBasedStateMachine):
    """Sequences grow by chunks, slide, end, in any order, in a pool that is too small."""

    def __init__(self):
        super().__init__()
        self.pool = _pool(full=9, window=7)
        self.lengths = {}
        self.tables = {}

    @precondition(lambda self: len(self.tables) < LIMITS.max_num_seqs)
    @rule()
    def arrive(self):
        """A sequence comes with empty tables."""
        key = max(self.tables, default=0) + 1
        self.tables[key], self.lengths[key] = self.pool.new_tables(), 0

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), chunk=st.integers(1, LIMITS.max_num_batched_tokens))
    def grow(self, data, chunk):
        """A sequence computes a chunk, or nothing changes for want of blocks."""
        key = data.draw(st.sampled_from(sorted(self.tables)))
        free = self.pool.num_free
        self.pool.free_outside_window(self.tables[key], self.lengths[key])
        missing = [table.missing(self.lengths[key] + chunk) for table in self.tables[key]]
        fits = all(n <= m for n, m in zip(missing, self.pool.num_free, strict=True))
        assert self.pool.allocate(self.tables[key], self.lengths[key] + chunk) is fits
        if fits:
            self.lengths[key] += chunk
        else:
            assert all(a >= b for a, b in zip(self.pool.num_free, free, strict=True))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data):
        """A sequence gives everything back."""
        key = data.draw(st.sampled_from(sorted(self.tables)))
        self.pool.free(self.tables.pop(key))
        del self.lengths[key]

    @invariant()
    def sound(self):
        """Blocks and tables agree."""
        self.pool.check_invariants(self.tables.values())

    @invariant()
    def tokens_in_reach_are_held(self):
        """What the next token attends to is never freed."""
        for key, tables in self.tables.items():
            for group, table in zip(self.pool.groups, tables, strict=True):
                reach = 0 if group.window is None else self.lengths[key] - group.window + 1
                first = max(0, reach) // LIMITS.block_size
                assert (table.blocks[first:] >= 0).all()
                assert table.num_columns * LIMITS.block_size >= self.lengths[key]


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_window_group_of_the_counted_size_never_runs_out():
    """With the blocks that sizing counts, full-length windows and any chunks always fit."""
    blocks = LIMITS.window_blocks(WINDOW.window)
    pool = KVPool((WINDOW,), (blocks,), LIMITS)
    tables = [pool.new_tables() for _ in range(LIMITS.max_num_seqs)]
    lengths = [0, 1, 2]
    for turn in range(60):
        chunks = [1] * 3
        chunks[turn % 3] = LIMITS.max_num_batched_tokens - 2
        for i, chunk in enumerate(chunks):
            pool.free_outside_window(tables[i], lengths[i])
            assert pool.allocate(tables[i], lengths[i] + chunk) is True
            lengths[i] += chunk
    pool.check_invariants(tables)

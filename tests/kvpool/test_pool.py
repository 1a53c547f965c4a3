"""KVPool: all groups at once, windows, and random use."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvpool import BlockKeys, KVPool, LayerGroup, PoolLimits

FULL = LayerGroup("full", (0,), num_kv_heads=1, head_dim=2, window=None)
WINDOW = LayerGroup("window", (1,), num_kv_heads=1, head_dim=2, window=6)
LIMITS = PoolLimits(block_size=4, max_num_seqs=3, max_num_batched_tokens=8, max_model_len=64)


def _pool(full=8, window=8):
    return KVPool((FULL, WINDOW), (full, window), LIMITS)


def test_allocate_extends_all_groups():
    """Tokens get a block of each group."""
    pool = _pool()
    tables = pool.new_tables()
    assert pool.allocate(tables, 0, 5) is True
    assert [table.blocks.tolist() for table in tables] == [[0, 1], [0, 1]]
    assert pool.allocate(tables, 5, 8) is True
    assert pool.num_free == (6, 6)


@pytest.mark.parametrize("sizes", [(2, 8), (8, 2)])
def test_allocate_is_all_or_nothing(sizes):
    """When one group has too few blocks, no group gives any."""
    pool = _pool(*sizes)
    tables = pool.new_tables()
    assert pool.allocate(tables, 0, 9) is False
    assert pool.num_free == sizes
    assert [table.num_columns for table in tables] == [0, 0]


def test_window_group_gives_back_what_nobody_attends_to():
    """Window 6 at position 13 reaches back to 8: blocks 0 and 1 go, in that group alone."""
    pool = _pool()
    tables = pool.new_tables()
    pool.allocate(tables, 0, 13)
    pool.free_outside_window(tables, 12)
    assert [table.blocks.tolist() for table in tables] == [[0, 1, 2, 3], [-1, 1, 2, 3]]
    pool.free_outside_window(tables, 13)
    assert [table.blocks.tolist() for table in tables] == [[0, 1, 2, 3], [-1, -1, 2, 3]]
    assert pool.num_free == (4, 6)


def test_free_returns_everything_and_the_same_blocks_come_again():
    """A preempted sequence that comes back alone gets its blocks in the same order."""
    pool = _pool()
    tables = pool.new_tables()
    pool.allocate(tables, 0, 13)
    before = [table.blocks.tolist() for table in tables]
    pool.free(tables)
    assert pool.num_free == (8, 8)
    pool.allocate(tables, 0, 13)
    assert [table.blocks.tolist() for table in tables] == before


def test_usage_counts_blocks_and_bytes():
    """Used, total and peak are over all groups, in blocks and bytes."""
    pool = _pool(8, 6)
    tables = pool.new_tables()
    pool.allocate(tables, 0, 9)
    pool.note_use()
    pool.free(tables)
    pool.allocate(tables, 0, 1)
    pool.note_use()
    usage = pool.usage
    assert (usage.used, usage.total, usage.peak) == (2, 14, 6)
    assert (usage.peak_bytes, usage.total_bytes) == (6 * 64, 14 * 64)


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ((40, 8), "160 tokens (2 rows of 64 tokens), 0 MiB"),
        ((40, 5), "160 tokens (1 row of 64 tokens), 0 MiB"),
        ((15, 8), "60 tokens (no row of full length, at most 60 tokens a row), 0 MiB"),
    ],
)
def test_capacity_says_what_fits(blocks, text):
    """Tokens, rows of full length by the scarcest group, and memory."""
    assert str(_pool(*blocks).capacity) == text


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
        chunk = pool.room(tables, length)
        assert chunk >= 1
        assert pool.allocate(tables, length, length + chunk + 1) is False
        assert pool.allocate(tables, length, length + chunk) is True
        length += chunk
    assert length == 64


def test_prefix_is_found_at_whole_blocks_up_to_the_last_token():
    """Nothing at first; then whole blocks, but a token is always left to compute."""
    pool = _pool()
    ids = list(range(12))
    first = pool.new_tables()
    assert pool.longest_prefix(first, ids) == 0
    pool.allocate(first, 0, 12)
    pool.publish(first, ids, 11)
    assert pool.longest_prefix(pool.new_tables(), ids) == 8
    pool.publish(first, ids, 12)
    assert pool.longest_prefix(pool.new_tables(), ids) == 8
    assert pool.longest_prefix(pool.new_tables(), [*ids, 99]) == 12
    assert pool.longest_prefix(pool.new_tables(), [*ids[:6], 99, *ids[7:]]) == 4
    assert pool.longest_prefix(pool.new_tables(), [99, *ids]) == 0


def test_reused_blocks_are_shared_not_copied():
    """The same blocks, held twice; the new sequence appends blocks of its own."""
    pool = _pool()
    ids = list(range(10))
    first, second = pool.new_tables(), pool.new_tables()
    pool.allocate(first, 0, 10)
    pool.publish(first, ids, 10)
    cached = pool.longest_prefix(second, ids)
    pool.reuse(second, cached)
    assert pool.allocate(second, cached, 10) is True
    assert second[0].blocks.tolist() == [0, 1, 3]
    assert first[0].blocks.tolist() == [0, 1, 2]
    assert pool.num_free[0] == 4
    pool.check_invariants([first, second])


def test_prefix_needs_a_window_groups_last_tokens_only():
    """Window 6 before position 12 reaches back to 7: block 1 on; what is gone before is no loss."""
    pool = _pool()
    ids = list(range(13))
    first = pool.new_tables()
    pool.allocate(first, 0, 12)
    pool.publish(first, ids, 12)
    pool.free_outside_window(first, 12)
    pool.free(first)
    pool._pools[1].take(6)  # 5 untouched ones, then the oldest idle: block 0 of the window group
    again = pool.new_tables()
    assert pool.longest_prefix(again, ids) == 12
    pool.reuse(again, 12)
    assert [table.blocks.tolist() for table in again] == [[0, 1, 2], [-1, 1, 2]]
    assert pool.longest_prefix(pool.new_tables(), ids[:9]) == 0  # would need the block that is gone


def test_tail_of_a_prefix_is_evicted_first():
    """Blocks of a finished sequence go from its end: what is left is still a prefix."""
    pool = _pool(4, 40)
    ids = list(range(13))
    first = pool.new_tables()
    pool.allocate(first, 0, 13)
    pool.publish(first, ids, 13)
    pool.free(first)
    found = []
    for _ in range(4):
        found.append(pool.longest_prefix(pool.new_tables(), ids))
        pool._pools[0].take(1)
    assert found == [12, 12, 8, 4]
    assert pool.longest_prefix(pool.new_tables(), ids) == 0


def test_without_prefix_caching_nothing_is_found():
    """The switch."""
    pool = KVPool((FULL, WINDOW), (8, 8), LIMITS, prefix_caching=False)
    ids = list(range(9))
    tables = pool.new_tables()
    pool.allocate(tables, 0, 9)
    pool.publish(tables, ids, 9)
    assert pool.longest_prefix(pool.new_tables(), ids) == 0
    pool.free(tables)
    assert pool.usage.idle == 0


def test_fork_shares_and_copies_on_the_first_write():
    """Full blocks stay shared; whoever writes into the common last block first gets a copy."""
    copies = []
    pool = KVPool((FULL,), (8,), LIMITS, copy_block=lambda *words: copies.append(words))
    parent = pool.new_tables()
    pool.allocate(parent, 0, 6)
    fork = pool.fork(parent, 6)
    assert fork[0].blocks.tolist() == [0, 1]
    assert (pool.num_free, copies) == ((6,), [])
    assert pool.allocate(fork, 6, 7) is True
    assert fork[0].blocks.tolist() == [0, 2]
    assert copies == [(0, 1, 2)]
    assert pool.allocate(parent, 6, 9) is True
    assert parent[0].blocks.tolist() == [0, 1, 3]
    assert copies == [(0, 1, 2)]  # the parent is alone in its block again
    pool.check_invariants([parent, fork])


def test_fork_into_a_published_block_copies_though_nobody_holds_it_too():
    """What can be found by its tokens is never written."""
    copies = []
    pool = KVPool((FULL,), (8,), LIMITS, copy_block=lambda *words: copies.append(words))
    ids = list(range(8))
    parent = pool.new_tables()
    pool.allocate(parent, 0, 8)
    pool.publish(parent, ids, 8)
    fork = pool.fork(parent, 7)
    pool.free(parent)
    assert pool.allocate(fork, 7, 8) is True
    assert copies == [(0, 1, 2)]
    assert pool.longest_prefix(pool.new_tables(), [*ids, 9]) == 8


def test_no_room_for_the_copy_changes_nothing():
    """A full pool: the write is refused and the block stays shared."""
    pool = KVPool((FULL,), (2,), LIMITS)
    parent = pool.new_tables()
    pool.allocate(parent, 0, 6)
    fork = pool.fork(parent, 6)
    assert pool.allocate(fork, 6, 7) is False
    assert fork[0].blocks.tolist() == [0, 1]
    pool.check_invariants([parent, fork])


def test_fork_behind_the_parents_window_is_none():
    """The parent gave blocks back that the fork would attend to."""
    pool = _pool()
    parent = pool.new_tables()
    pool.allocate(parent, 0, 13)
    pool.free_outside_window(parent, 13)
    assert pool.fork(parent, 9) is None
    fork = pool.fork(parent, 13)
    assert [table.blocks.tolist() for table in fork] == [[0, 1, 2, 3], [-1, -1, 2, 3]]


def test_blocks_ahead_are_bounded_by_the_window():
    """A full group takes a block every four tokens, a window group swaps old for new."""
    pool = _pool()
    tables = pool.new_tables()
    assert pool.ahead(tables, 0, 20) == (5, 3)
    pool.allocate(tables, 0, 8)
    assert pool.ahead(tables, 8, 20) == (3, 1)
    assert pool.ahead(tables, 7, 8) == (0, 0)
    fork = pool.fork(tables, 7)
    assert pool.ahead(fork, 7, 8) == (1, 1)  # the copy of what both see


def test_room_counts_free_blocks_and_the_copy_of_a_shared_one():
    """What fits now beside the others, in whole blocks, to the end of the last one."""
    pool = KVPool((FULL,), (4,), LIMITS)
    first = pool.new_tables()
    assert pool.room(first, 0) == 16
    pool.allocate(first, 0, 6)
    assert pool.room(first, 6) == 16 - 6
    other = pool.new_tables()
    pool.allocate(other, 0, 8)
    assert (pool.room(first, 6), pool.room(first, 8), pool.room(other, 8)) == (2, 0, 0)
    pool.free(other)
    fork = pool.fork(first, 6)
    assert pool.room(fork, 6) == 12 - 6
    pool.allocate(pool.new_tables(), 0, 8)
    assert pool.room(fork, 6) == 0


class _Twin:
    """A sequence of the machine below: its tokens, how many are written, its tables."""

    def __init__(self, ids, tables):
        self.ids, self.tables, self.written = ids, tables, 0


class PoolMachine(RuleBasedStateMachine):
    """Sequences start with prefixes, grow, fork, slide, are preempted and end, in a small pool.

    The naive model is what each slot holds: the whole history up to its token. A sequence must read
    its own history at every position in reach, whoever wrote it and whatever happened since.
    """

    def __init__(self):
        super().__init__()
        self.num_blocks = (12, 6)
        self.pool = KVPool((FULL, WINDOW), self.num_blocks, LIMITS, copy_block=self.copy_block)
        self.slots = [[[None] * 4 for _ in range(count)] for count in self.num_blocks]
        self.live = []
        self.published = set()  # every history that ever was a full, written block

    def copy_block(self, group, source, target):
        """The K/V of a block."""
        self.slots[group][target] = list(self.slots[group][source])

    @precondition(lambda self: len(self.live) < 4)
    @rule(base=st.integers(0, 1), same=st.integers(0, 20), rest=st.integers(1, 6))
    def arrive(self, base, same, rest):
        """A sequence comes, like others for a while, and takes what prefix there is."""
        ids = [base] * same + [1 - base] * rest
        tables = self.pool.new_tables()
        cached = self.pool.longest_prefix(tables, ids)
        assert cached % 4 == 0
        assert cached < len(ids)
        assert cached == 0 or tuple(ids[:cached]) in self.published
        self.pool.reuse(tables, cached)
        self.live.append(_Twin(ids, tables))
        self.live[-1].written = cached

    @precondition(lambda self: self.live)
    @rule(data=st.data(), chunk=st.integers(1, 8), token=st.integers(0, 1))
    def append(self, data, chunk, token):
        """A sequence computes a chunk, or nothing changes for want of blocks."""
        twin = data.draw(st.sampled_from(self.live))
        if twin.written == len(twin.ids):
            twin.ids.append(token)
        start, end = twin.written, min(len(twin.ids), twin.written + chunk)
        self.pool.free_outside_window(twin.tables, start)
        before = [table.blocks.tolist() for table in twin.tables], self.pool.num_free
        if not self.pool.allocate(twin.tables, start, end):
            assert ([table.blocks.tolist() for table in twin.tables], self.pool.num_free) == before
            return
        for position in range(start, end):
            for group, table in enumerate(twin.tables):
                block = table.block(position // 4)
                self.slots[group][block][position % 4] = tuple(twin.ids[: position + 1])
        twin.written = end
        self.pool.publish(twin.tables, twin.ids, end)
        self.published |= {tuple(twin.ids[: n * 4]) for n in range(1, end // 4 + 1)}

    @precondition(lambda self: 0 < len(self.live) < 4)
    @rule(data=st.data(), back=st.integers(0, 8))
    def fork(self, data, back):
        """Another sequence shares the first tokens of one, and goes on with another token."""
        parent = data.draw(st.sampled_from(self.live))
        shared = parent.written - back
        if shared > 0 and (tables := self.pool.fork(parent.tables, shared)) is not None:
            other = 1 - parent.ids[shared] if shared < len(parent.ids) else 0
            self.live.append(_Twin([*parent.ids[:shared], other], tables))
            self.live[-1].written = shared

    @precondition(lambda self: self.live)
    @rule(data=st.data(), comes_back=st.booleans())
    def release(self, data, comes_back):
        """A sequence ends, or is preempted and starts anew with what is still there."""
        twin = data.draw(st.sampled_from(self.live))
        self.pool.free(twin.tables)
        assert twin.tables.is_empty
        if comes_back:
            twin.written = self.pool.longest_prefix(twin.tables, twin.ids)
            self.pool.reuse(twin.tables, twin.written)
        else:
            self.live.remove(twin)

    @invariant()
    def sound(self):
        """Blocks and tables agree."""
        self.pool.check_invariants(twin.tables for twin in self.live)

    @invariant()
    def every_sequence_reads_its_own_history(self):
        """At each position that its next token attends to."""
        for twin in self.live:
            for g, (group, table) in enumerate(zip(self.pool.groups, twin.tables, strict=True)):
                reach = 0 if group.window is None else max(0, twin.written - group.window + 1)
                for position in range(reach, twin.written):
                    block = table.block(position // 4)
                    assert self.slots[g][block][position % 4] == tuple(twin.ids[: position + 1])

    @invariant()
    def what_is_findable_is_true(self):
        """A block in a prefix cache holds the history of its key."""
        for slots, pool in zip(self.slots, self.pool._pools, strict=True):
            for block, key in pool.cache._keys.items():
                history = slots[block][-1]
                assert BlockKeys(4).first(history, len(history) // 4)[-1] == key


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


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
            assert pool.allocate(tables[i], lengths[i], lengths[i] + chunk) is True
            lengths[i] += chunk
    pool.check_invariants(tables)

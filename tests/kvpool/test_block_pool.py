"""BlockPool: free list and reference counts."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvpool import BlockKeys
from kvpool.block_pool import BlockPool

from .naive_pool import NaiveBlockPool


def test_blocks_are_handed_out_from_zero():
    """A fresh pool hands out ascending ids."""
    assert BlockPool(4).take(3) == [0, 1, 2]


def test_last_released_is_taken_first():
    """Memory that was in use is used again before memory never touched."""
    pool = BlockPool(8)
    first, second, third = pool.take(3)
    pool.release(second)
    pool.release(first)
    assert pool.take(3) == [first, second, 3]
    assert pool.references(third) == 1


def test_shared_block_is_free_after_the_last_release():
    """A block with two references stays held after the first release."""
    pool = BlockPool(2)
    (block,) = pool.take(1)
    pool.retain(block)
    pool.release(block)
    assert (pool.num_used, pool.references(block)) == (1, 1)
    pool.release(block)
    assert (pool.num_used, pool.num_free, pool.references(block)) == (0, 2, 0)


def test_a_pool_of_any_size_costs_nothing_to_make():
    """Ids that were never handed out are stored nowhere."""
    pool = BlockPool(10**15)
    assert pool.take(2) == [0, 1]
    assert pool.num_free == 10**15 - 2
    pool.check_invariants()


def test_double_release_is_our_bug():
    """Releasing a free block does not pass in silence."""
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.release(block)
    with pytest.raises(KeyError):
        pool.release(block)


def test_operations_touch_no_more_than_the_blocks_they_name():
    """Taking and releasing never walks the pool: its containers refuse iteration here."""

    class NoWalk(list):
        def __iter__(self):
            raise AssertionError("walked the free list")

        __contains__ = __reversed__ = index = remove = insert = __iter__

    class NoWalkDict(dict):
        def __iter__(self):
            raise AssertionError("walked the references")

        keys = values = items = __iter__

    pool = BlockPool(1000)
    for block in pool.take(900):
        pool.release(block)
    pool._given_back = NoWalk(pool._given_back)
    pool._references = NoWalkDict()
    blocks = pool.take(10)
    pool.retain(blocks[0])
    for block in [blocks[0], *blocks]:
        pool.release(block)
    assert (pool.num_free, pool.num_used) == (1000, 0)


KEYS = BlockKeys(1).first(list(range(6)), 6)


def test_idle_blocks_are_evicted_least_recently_used_first():
    """Blocks without a key go first, then untouched ones, then the prefix used longest ago."""
    pool = BlockPool(4)
    a, b, c = pool.take(3)
    for block, key in zip((a, b), KEYS, strict=False):
        pool.publish(block, key)
    for block in (a, b, c):
        pool.release(block)
    assert (pool.num_free, pool.cache.num_idle) == (4, 2)
    assert pool.take(2) == [c, 3]
    assert pool.cache.find(KEYS[0]) == a
    pool.retain(a)
    pool.release(a)  # used since: now younger than b
    assert pool.take(1) == [b]
    assert (pool.cache.find(KEYS[1]), pool.cache.num_evictions) == (None, 1)
    assert pool.take(1) == [a]
    assert pool.cache.find(KEYS[0]) is None


def test_found_block_is_held_again_with_its_content():
    """An idle block is taken up again; a held one is shared."""
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.publish(block, KEYS[0])
    pool.release(block)
    pool.retain(block)
    assert (pool.references(block), pool.num_free, pool.cache.num_idle) == (1, 0, 0)
    pool.retain(block)
    assert pool.references(block) == 2


def test_tokens_are_compared_on_a_hit():
    """A digest alone is not believed."""
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.publish(block, KEYS[0])
    assert pool.cache.find(KEYS[0]) == block
    assert pool.cache.find(KEYS[0]._replace(tokens=b"other")) is None


def test_only_a_block_of_ones_own_is_writable():
    """Not a shared one, and not one that others may find."""
    pool = BlockPool(1)
    (block,) = pool.take(1)
    assert pool.is_writable(block)
    pool.retain(block)
    assert not pool.is_writable(block)
    pool.release(block)
    pool.publish(block, KEYS[0])
    assert not pool.is_writable(block)


def test_finished_sequences_block_has_one_owner():
    """Finish A, allocate B, submit A again: an earlier engine gave A a block that B had."""
    pool = BlockPool(1)
    (a,) = pool.take(1)
    pool.publish(a, KEYS[0])
    pool.release(a)
    assert pool.take(1) == [a]  # B
    assert pool.cache.find(KEYS[0]) is None
    assert pool.references(a) == 1


def test_index_is_never_larger_than_the_pool():
    """A million rows later it holds as many keys as there are blocks."""
    pool = BlockPool(3)
    for start in range(0, 3000, 3):
        blocks = pool.take(3)
        for block, key in zip(blocks, BlockKeys(1).first([start, 1, 2], 3), strict=True):
            pool.publish(block, key)
        for block in reversed(blocks):
            pool.release(block)
        assert len(pool.cache._blocks) == len(pool.cache._keys) == pool.cache.num_idle == 3
    assert pool.cache.num_evictions == 2997
    pool.check_invariants()


class BlockPoolMachine(RuleBasedStateMachine):
    """Any operations, in any order: the same block ids as the naive twin."""

    def __init__(self):
        super().__init__()
        self.pool, self.twin = BlockPool(7), NaiveBlockPool(7)
        self.held = []

    @rule(count=st.integers(0, 4))
    def take(self, count):
        """Take blocks, if there are so many."""
        if count <= self.twin.num_free:
            taken = self.pool.take(count)
            assert taken == self.twin.take(count)
            self.held += taken

    @rule(key=st.sampled_from(KEYS))
    def share(self, key):
        """Hold what is found under a key, idle or held by somebody."""
        found = self.pool.cache.find(key)
        assert found == self.twin.find(key)
        if found is not None:
            self.pool.retain(found)
            self.twin.retain(found)
            self.held.append(found)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def publish(self, data, key):
        """Give a held block a key."""
        block = data.draw(st.sampled_from(self.held))
        self.pool.publish(block, key)
        self.twin.publish(block, key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        """Let go of a block."""
        block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(block)
        self.twin.release(block)

    @invariant()
    def same(self):
        """Counts, keys and holders agree."""
        self.pool.check_invariants()
        assert self.pool.num_free == self.twin.num_free
        assert [self.pool.references(block) for block in range(7)] == self.twin.holders
        assert [self.pool.cache.find(key) for key in KEYS] == list(map(self.twin.find, KEYS))
        for block in set(self.held):
            sole = self.twin.holders[block] == 1 and self.twin.keys[block] is None
            assert self.pool.is_writable(block) is sole


TestBlockPoolMachine = BlockPoolMachine.TestCase
TestBlockPoolMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

"""BlockPool: free list and reference counts."""

import pytest

from kvpool.block_pool import BlockPool


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


def test_peak_stays_after_release():
    """The peak is the most blocks ever held, not those held now."""
    pool = BlockPool(5)
    for block in pool.take(4):
        pool.release(block)
    pool.take(2)
    assert (pool.num_used, pool.peak_used) == (2, 4)


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
    pool.peak_used = 0
    pool._given_back = NoWalk(pool._given_back)
    pool._references = NoWalkDict()
    blocks = pool.take(10)
    pool.retain(blocks[0])
    for block in [blocks[0], *blocks]:
        pool.release(block)
    assert (pool.num_free, pool.num_used, pool.peak_used) == (1000, 0, 10)

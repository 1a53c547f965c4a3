"""Recurrent states beside the blocks: a slot for each sequence that holds blocks."""

import numpy as np
import pytest

from kvpool import KVPool, LayerGroup, PoolLimits, StateCache, StateShape

GROUP = LayerGroup("full", (1,), num_kv_heads=1, head_dim=2, window=None)
LIMITS = PoolLimits(block_size=4, max_num_seqs=3, max_num_batched_tokens=8, max_model_len=16)
SHAPE = StateShape(layers=(0, 2), inputs=3, channels=10, heads=2, key_dim=4, value_dim=5)


def new_pool(num_states=3):
    """A pool for three sequences."""
    return KVPool([GROUP], [12], LIMITS, prefix_caching=False, num_states=num_states)


def test_each_sequence_has_a_state_of_its_own_as_long_as_it_holds_blocks():
    """Taken with the first blocks, kept, given back with them, and taken by the next."""
    pool = new_pool()
    live = [pool.new_tables() for _ in range(3)]
    for tables in live:
        assert tables.state is None
        assert pool.allocate(tables, 0, 3)
    slots = [tables.state for tables in live]
    assert sorted(slots) == [0, 1, 2]
    assert pool.allocate(live[1], 3, 9)
    assert live[1].state == slots[1]
    pool.check_invariants(live)
    pool.free(live[1])
    assert live[1].state is None
    newcomer = pool.new_tables()
    assert pool.allocate(newcomer, 0, 1)
    assert newcomer.state == slots[1]
    pool.check_invariants([live[0], live[2], newcomer])


def test_room_for_nothing_takes_no_state():
    """An allocation that fails changes nothing."""
    pool = KVPool([GROUP], [2], LIMITS, prefix_caching=False, num_states=3)
    first, second = pool.new_tables(), pool.new_tables()
    assert pool.allocate(first, 0, 8)
    assert not pool.allocate(second, 0, 1)
    assert second.state is None
    pool.check_invariants([first, second])


def test_a_fork_gets_a_copy_of_a_saved_state():
    """After as many tokens as it shares, as long as the copy is kept; else it computes anew."""
    copies = []
    pool = KVPool(
        [GROUP], [12], LIMITS, prefix_caching=False, num_states=3, num_saved_states=1,
        copy_state=lambda source, target: copies.append((source, target)),
    )  # fmt: skip
    parent, other = pool.new_tables(), pool.new_tables()
    pool.allocate(parent, 0, 5)
    pool.allocate(other, 0, 5)
    assert pool.fork(parent, 5) is None
    pool.save_state(parent, 5)
    pool.save_state(parent, 5)
    pool.save_state(other, 5)  # no slot is left
    saved = parent.saved_state[0]
    assert (3, None) == (saved, other.saved_state)
    pool.allocate(parent, 5, 9)
    assert pool.fork(parent, 4) is None
    fork = pool.fork(parent, 5)
    pool.check_invariants([parent, other, fork])
    assert copies == [(parent.state, saved), (saved, fork.state)]
    assert len({parent.state, other.state, fork.state}) == 3
    pool.drop_saved_state(parent)
    assert pool.fork(parent, 5) is None
    pool.save_state(other, 5)
    assert other.saved_state == (saved, 5)
    pool.free(other)
    pool.check_invariants([parent, fork])


def test_a_fork_of_nothing_begins_anew():
    """A prompt of one token leaves none to share."""
    pool = new_pool()
    parent = pool.new_tables()
    pool.allocate(parent, 0, 3)
    fork = pool.fork(parent, 0)
    assert fork.state not in (None, parent.state)
    pool.check_invariants([parent, fork])


def test_states_and_a_prefix_cache_do_not_go_together():
    """A state cannot be cut back to a prefix."""
    with pytest.raises(AssertionError, match="cannot start with a prefix"):
        KVPool([GROUP], [12], LIMITS, num_states=3)


def test_a_lost_state_is_noticed():
    """The invariants name it."""
    pool = new_pool()
    tables = pool.new_tables()
    pool.allocate(tables, 0, 1)
    tables.state = None
    with pytest.raises(AssertionError, match="a lost state"):
        pool.check_invariants([tables])


def test_a_copy_goes_on_where_its_source_was():
    """All layers, and the number of tokens; no other slot is touched."""
    cache = StateCache(SHAPE, 3)
    cache.inputs[:] = np.arange(3)[None, :, None, None]
    cache.memories[:] = np.arange(3)[None, :, None, None, None]
    cache.end_step(np.array([1]), np.array([7]))
    cache.copy_state(1, 2)
    assert np.unique(cache.inputs[:, 2]).tolist() == [1]
    assert np.unique(cache.memories[:, 2]).tolist() == [1]
    assert np.unique(cache.inputs[:, 0]).tolist() == [0]
    cache.begin_step(np.array([2]), np.array([7]))
    with pytest.raises(AssertionError, match="cannot go on at"):
        cache.begin_step(np.array([1]), np.array([6]))


def test_a_cache_is_as_large_as_its_shape_says():
    """Two arrays of float32, a slot for each sequence, addressed by the model's layers."""
    cache = StateCache(SHAPE, 3)
    assert cache.inputs.nbytes + cache.memories.nbytes == 3 * SHAPE.n_bytes
    assert (3, 0, 1) == (cache.slots, cache.layer(0), cache.layer(2))
    assert {np.dtype(np.float32)} == {cache.inputs.dtype, cache.memories.dtype}

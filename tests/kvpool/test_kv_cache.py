"""KVCache: shapes, places, laziness."""

from copy import copy, deepcopy

import numpy as np
import pytest

from kvpool import KVCache, LayerGroup

GROUPS = (
    LayerGroup("full", (2, 5), num_kv_heads=3, head_dim=8, window=None),
    LayerGroup("window", (0, 1, 3, 4), num_kv_heads=2, head_dim=4, window=6),
)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_shapes_follow_the_groups(dtype):
    """One pair of arrays a group; slots are last in the keys, dimensions in the values."""
    cache = KVCache(GROUPS, (7, 5), 16, dtype)
    assert [k.shape for k in cache.keys] == [(2, 7, 3, 8, 16), (4, 5, 2, 4, 16)]
    assert [v.shape for v in cache.values] == [(2, 7, 3, 16, 8), (4, 5, 2, 16, 4)]
    assert {a.dtype for a in (*cache.keys, *cache.values)} == {np.dtype(dtype)}
    assert all(a.flags.c_contiguous for a in (*cache.keys, *cache.values))


def test_layers_are_found_in_their_group():
    """A model layer maps to its group and its index there."""
    cache = KVCache(GROUPS, (1, 1), block_size=2)
    assert [cache.layer(i) for i in range(6)] == [(1, 0), (1, 1), (0, 0), (1, 2), (1, 3), (0, 1)]


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("float16", 2)])
def test_bytes_agree_with_block_bytes(dtype, itemsize):
    """What the arrays take is what sizing counts."""
    cache = KVCache(GROUPS, (7, 5), 16, dtype)
    blocks = [group.block_bytes(16, itemsize) for group in GROUPS]
    assert cache.n_bytes == 7 * blocks[0] + 5 * blocks[1]


def test_copied_block_is_the_same_in_all_layers_and_no_other_block_changes():
    """Copy-on-write: keys and values of one group."""
    cache = KVCache(GROUPS, (5, 5), 4)
    rng = np.random.default_rng(0)
    for array in (*cache.keys, *cache.values):
        array[:] = rng.normal(size=array.shape)
    before = cache.copy()
    cache.copy_block(1, 3, 0)
    for now, then in zip((cache.keys, cache.values), (before.keys, before.values), strict=True):
        assert np.array_equal(now[1][:, 0], then[1][:, 3])
        assert np.array_equal(now[1][:, 1:], then[1][:, 1:])
        assert np.array_equal(now[0], then[0])


@pytest.mark.parametrize("clone", [KVCache.copy, copy, deepcopy])
def test_clone_never_aliases(clone):
    """What is written to one of the two is not seen in the other."""
    cache = KVCache(GROUPS, (2, 2), 4, "float16")
    twin = clone(cache)
    assert all(
        not np.shares_memory(mine, theirs)
        for mine, theirs in zip(
            (*cache.keys, *cache.values), (*twin.keys, *twin.values), strict=True
        )
    )
    cache.keys[0][:] = 1
    assert not twin.keys[0].any()
    assert twin.layer(5) == cache.layer(5)


def test_reserving_takes_no_memory():
    """A pool of gigabytes costs nothing until a block is written."""
    import psutil

    before = psutil.Process().memory_info().rss
    cache = KVCache(GROUPS, (1_000_000, 1), block_size=16)
    assert cache.n_bytes > 3 << 30
    assert psutil.Process().memory_info().rss - before < 64 << 20

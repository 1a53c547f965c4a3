"""KVCache: shapes, places, laziness."""

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


def test_reserving_takes_no_memory():
    """A pool of gigabytes costs nothing until a block is written."""
    import psutil

    before = psutil.Process().memory_info().rss
    cache = KVCache(GROUPS, (1_000_000, 1), block_size=16)
    assert cache.n_bytes > 3 << 30
    assert psutil.Process().memory_info().rss - before < 64 << 20

"""The KV pool of an engine: its size from the settings, checked, then reserved."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from kvpool import KVCache, KVPool, LayerGroup, PoolLimits
from kvpool.sizing import (
    blocks_from_bytes,
    blocks_from_share,
    blocks_from_tokens,
    check_memory,
    most_tokens,
    pool_bytes,
    useful_blocks,
)

from .config import EngineConfig


def build_kv(
    groups: Sequence[LayerGroup], config: EngineConfig, max_model_len: int
) -> tuple[KVPool, KVCache]:
    """The pool's bookkeeping and its arrays.

    Raises:
        PoolSizeError: the pool cannot hold one block, or the machine cannot hold the pool.
    """
    dtype = config.kv_cache_dtype
    limits = PoolLimits(
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=max_model_len,
        itemsize=np.dtype(dtype).itemsize,
    )
    num_blocks = _num_blocks(groups, config, limits)
    if config.kv_pool_share is None:  # a share is one of what is free
        _check_memory(groups, num_blocks, config, limits)
    cache = KVCache(groups, num_blocks, config.block_size, dtype)
    pool = KVPool(
        groups,
        num_blocks,
        limits,
        copy_block=cache.copy_block,
        prefix_caching=config.prefix_caching,
    )
    return pool, cache


def _num_blocks(
    groups: Sequence[LayerGroup], config: EngineConfig, limits: PoolLimits
) -> tuple[int, ...]:
    if config.kv_pool_tokens is not None:
        return blocks_from_tokens(groups, config.kv_pool_tokens, limits)
    if config.kv_pool_bytes is not None:
        return blocks_from_bytes(groups, config.kv_pool_bytes, limits)
    if config.kv_pool_share is not None:
        return blocks_from_share(groups, config.kv_pool_share, limits)
    return useful_blocks(groups, limits)


def _check_memory(
    groups: Sequence[LayerGroup],
    num_blocks: Sequence[int],
    config: EngineConfig,
    limits: PoolLimits,
) -> None:
    needed = pool_bytes(groups, num_blocks, limits)
    if config.kv_pool_tokens is not None:
        check_memory(needed, "kv_pool_tokens", partial(most_tokens, groups, limits=limits))
    else:
        check_memory(needed, "kv_pool_bytes", int)

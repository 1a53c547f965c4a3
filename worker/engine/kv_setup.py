"""The KV pool of an engine: its size from the settings, checked, then reserved."""

from collections.abc import Sequence

import numpy as np

from kvpool import KVCache, KVPool, LayerGroup, PoolLimits
from kvpool.sizing import (
    blocks_from_bytes,
    blocks_from_tokens,
    check_memory,
    default_blocks,
    pool_bytes,
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
    setting = "kv_pool_bytes" if config.kv_pool_tokens is None else "kv_pool_tokens"
    check_memory(pool_bytes(groups, num_blocks, limits), setting)
    cache = KVCache(groups, num_blocks, config.block_size, dtype)
    return KVPool(groups, num_blocks, limits), cache


def _num_blocks(
    groups: Sequence[LayerGroup], config: EngineConfig, limits: PoolLimits
) -> tuple[int, ...]:
    if config.kv_pool_tokens is not None:
        return blocks_from_tokens(groups, config.kv_pool_tokens, limits)
    if config.kv_pool_bytes is not None:
        return blocks_from_bytes(groups, config.kv_pool_bytes, limits)
    return default_blocks(groups, limits)

"""The KV pool of an engine: its size from the settings, checked, then reserved."""

import logging
from collections.abc import Sequence
from functools import partial

import numpy as np

from kvpool import KVCache, KVPool, LayerGroup, PoolLimits, StateCache, StateShape
from kvpool.sizing import (
    blocks_from_bytes,
    blocks_from_share,
    blocks_from_tokens,
    check_memory,
    most_tokens,
    pool_bytes,
    useful_blocks,
)
from worker.models.model import Model

from .config import EngineConfig

_log = logging.getLogger(__name__)
_SAVED_STATES = 4  # rows whose further completions begin in the same step; others compute anew


def build_kv(model: Model, config: EngineConfig, max_model_len: int) -> tuple[KVPool, KVCache]:
    """The pool's bookkeeping and its arrays; a recurrent state for each of `max_num_seqs`.

    Raises:
        PoolSizeError: the pool cannot hold one block, or the machine cannot hold the pool.
    """
    groups = model.layer_groups
    dtype = config.kv_cache_dtype
    limits = PoolLimits(
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=max_model_len,
        itemsize=np.dtype(dtype).itemsize,
    )
    num_blocks = _num_blocks(groups, config, limits)
    states = _states(model.state_shape, config)
    if config.kv_pool_share is None:  # a share is one of what is free
        _check_memory(groups, num_blocks, config, limits)
    cache = KVCache(groups, num_blocks, config.block_size, dtype, states)
    pool = KVPool(
        groups,
        num_blocks,
        limits,
        copy_block=cache.copy_block,
        prefix_caching=config.prefix_caching and states is None,
        num_states=0 if states is None else config.max_num_seqs,
        num_saved_states=0 if states is None else _SAVED_STATES,
        copy_state=None if states is None else states.copy_state,
    )
    return pool, cache


def _states(shape: StateShape | None, config: EngineConfig) -> StateCache | None:
    """Recurrent states for a model that has them.

    Raises:
        PoolSizeError: the machine cannot hold so many.
    """
    if shape is None:
        return None
    if config.prefix_caching:
        _log.warning(
            "prefix caching is off: this model's recurrent layers keep a state of %s bytes for "
            "each row, which cannot be shared",
            f"{shape.n_bytes:,}",
        )
    slots = config.max_num_seqs + _SAVED_STATES

    def most_rows(available: int) -> int:
        return max(0, available // shape.n_bytes - _SAVED_STATES)

    check_memory(slots * shape.n_bytes, "max_num_seqs", most_rows)
    return StateCache(shape, slots)


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

"""``tokenmill bench-pool``: what the KV pool's bookkeeping costs, in pools of several sizes."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter

import numpy as np

from kvpool import BlockTables, KVCache, KVPool, LayerGroup, PoolLimits
from worker.kernels.kv_write import kv_write

from .text_table import aligned

_BLOCK = 16
_BLOCKS = 1_000
_ROW_TOKENS = 640
_SHARED_TOKENS = 592
_ROWS = 400
_STEP_TOKENS = 32
_LOOKS = 3
GROUP = LayerGroup("full", (0,), num_kv_heads=1, head_dim=64, window=None)


@dataclass(frozen=True, slots=True)
class PoolSpeed:
    """Block operations a second of one kind: the best of a few looks.

    Attributes:
        operation: what is done to each block.
        num_blocks: blocks of the pool.
        per_s: blocks a second.
    """

    operation: str
    num_blocks: int
    per_s: float


def run_pool_bench(output_format: str) -> None:
    """Measure every kind of operation in pools of 1, 10 and 100 times the blocks, and print."""
    speeds = [speed for scale in (1, 10, 100) for speed in measure_pool(scale * _BLOCKS)]
    if output_format == "json":
        print(json.dumps([asdict(speed) for speed in speeds], indent=2))
    else:
        print(*pool_lines(speeds), sep="\n")


def measure_pool(num_blocks: int) -> list[PoolSpeed]:
    """Block operations a second in a pool of that many blocks."""
    kinds: dict[str, Callable[[int], tuple[int, float]]] = {
        "allocate and free": _allocate_and_free,
        "allocate, publish, evict": _allocate_publish_evict,
        "find and share a prefix": _find_and_share,
        "fork, copy, free": _fork,
        "write K/V": _write,
    }
    return [
        PoolSpeed(name, num_blocks, max(_rate(*kind(num_blocks)) for _ in range(_LOOKS)))
        for name, kind in kinds.items()
    ]


def pool_lines(speeds: list[PoolSpeed]) -> list[str]:
    """A line a kind of operation, a column a size."""
    sizes = sorted({speed.num_blocks for speed in speeds})
    rows = [("block operations/s", *(f"{size:,} blocks" for size in sizes))]
    for operation in dict.fromkeys(speed.operation for speed in speeds):
        of_size = {s.num_blocks: s.per_s for s in speeds if s.operation == operation}
        rows.append((operation, *(f"{of_size[size]:,.0f}" for size in sizes)))
    return aligned(rows)


def _rate(blocks: int, seconds: float) -> float:
    return blocks / seconds


def _pool(num_blocks: int, cache: KVCache | None = None) -> KVPool:
    limits = PoolLimits(
        block_size=_BLOCK,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=num_blocks * _BLOCK,
    )
    copy_block = None if cache is None else cache.copy_block
    return KVPool((GROUP,), (num_blocks,), limits, copy_block=copy_block)


def _row(row: int) -> list[int]:
    """A prompt: the prefix that all share, and tokens of its own."""
    return [*range(_SHARED_TOKENS), *range(1000 * row, 1000 * row + _ROW_TOKENS - _SHARED_TOKENS)]


def _allocate_and_free(num_blocks: int) -> tuple[int, float]:
    """Rows take all their blocks and give them back."""
    pool = _pool(num_blocks)
    started = perf_counter()
    for _ in range(_ROWS):
        tables = pool.new_tables()
        pool.allocate(tables, 0, _ROW_TOKENS)
        pool.free(tables)
    return 2 * _ROWS * _ROW_TOKENS // _BLOCK, perf_counter() - started


def _allocate_publish_evict(num_blocks: int) -> tuple[int, float]:
    """Rows without a common prefix, in a pool so full of idle blocks that each evicts another."""
    pool = _pool(num_blocks)
    whole = pool.new_tables()
    pool.allocate(whole, 0, num_blocks * _BLOCK)
    pool.publish(whole, range(num_blocks * _BLOCK), num_blocks * _BLOCK)
    pool.free(whole)
    prompts = [[-row * 7919 - i for i in range(_ROW_TOKENS)] for row in range(1, _ROWS + 1)]
    started = perf_counter()
    for prompt in prompts:
        tables = pool.new_tables()
        pool.allocate(tables, 0, _ROW_TOKENS)
        pool.publish(tables, prompt, _ROW_TOKENS)
        pool.free(tables)
    assert pool.usage.evictions == _ROWS * _ROW_TOKENS // _BLOCK, "a block was not idle"
    return 3 * _ROWS * _ROW_TOKENS // _BLOCK, perf_counter() - started


def _find_and_share(num_blocks: int) -> tuple[int, float]:
    """Rows find a prefix, share it, add blocks of their own and give all back."""
    pool = _pool(num_blocks)
    first = pool.new_tables()
    pool.allocate(first, 0, _ROW_TOKENS)
    pool.publish(first, _row(0), _ROW_TOKENS)
    prompts = [_row(row) for row in range(1, _ROWS + 1)]
    started = perf_counter()
    for prompt in prompts:
        tables = pool.new_tables()
        cached = pool.longest_prefix(tables, prompt)
        pool.reuse(tables, cached)
        pool.allocate(tables, cached, _ROW_TOKENS)
        pool.free(tables)
    blocks = _ROWS * (2 * _SHARED_TOKENS + 2 * _ROW_TOKENS - _SHARED_TOKENS) // _BLOCK
    return blocks, perf_counter() - started


def _write(num_blocks: int) -> tuple[int, float]:
    """A row's keys and values go to its blocks, spread over the pool, a step's worth at a time."""
    cache = KVCache((GROUP,), (num_blocks,), _BLOCK, "float16")
    positions = np.arange(_ROW_TOKENS)
    blocks = positions // _BLOCK * (num_blocks * _BLOCK // _ROW_TOKENS)
    slots = blocks * np.int64(_BLOCK) + positions % _BLOCK
    qkv = np.ones((_STEP_TOKENS, 2 * GROUP.head_dim), np.float32)
    kv_write(qkv, cache.keys[0][0], cache.values[0][0], slots[:_STEP_TOKENS])  # compiled
    started = perf_counter()
    for _ in range(_ROWS):
        for first in range(0, _ROW_TOKENS, _STEP_TOKENS):
            step = slots[first : first + _STEP_TOKENS]
            kv_write(qkv, cache.keys[0][0], cache.values[0][0], step)
    return _ROWS * _ROW_TOKENS // _BLOCK, perf_counter() - started


def _fork(num_blocks: int) -> tuple[int, float]:
    """Forks share a row's blocks, copy the last one to write it, and give all back."""
    cache = KVCache((GROUP,), (num_blocks,), _BLOCK, "float16")
    pool = _pool(num_blocks, cache)
    parent: BlockTables = pool.new_tables()
    pool.allocate(parent, 0, _ROW_TOKENS - 1)
    started = perf_counter()
    for _ in range(_ROWS):
        fork = pool.fork(parent, _ROW_TOKENS - 1)
        assert fork is not None, "a full group can always be forked"
        pool.allocate(fork, _ROW_TOKENS - 1, _ROW_TOKENS)
        pool.free(fork)
    return 2 * _ROWS * _ROW_TOKENS // _BLOCK, perf_counter() - started

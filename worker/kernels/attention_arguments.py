"""What `attention_task` is given: its arguments, checked once, and its scratch memory."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attention import ITEM_WORDS, MOST_PARTS, QUERY_TILE
from .attention_span import take_span
from .attention_tiles import MOST_ROWS, SPAN, lanes, score_tile, value_tile
from .native import address_of, real_word
from .task_arguments import KVDtype, kv_dtype, pool_shape, rows_at

_LINE = 64  # bytes of a cache line


@dataclass(frozen=True, slots=True)
class AttentionScratch:
    """Memory of `attention_task` between its items, the same for all layers of a shape.

    Attributes:
        threads: uint8 [threads, bytes].
        parts: uint8 [MOST_PARTS, bytes], 0 where no part was handed in; memory that is never
            written takes none of the machine's.
    """

    threads: NDArray[np.uint8]
    parts: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class AttentionSinks:
    """A score for each query head that has no value, as the softmax of attention takes it.

    Attributes:
        states: float32 [heads, 2]: the score, and 1, the weight it has itself.
        no_sums: float32 [columns], zeros.
    """

    states: NDArray[np.float32]
    no_sums: NDArray[np.float32]

    @classmethod
    def of(cls, scores: NDArray[np.float32], head_dim: int) -> "AttentionSinks":
        """Sinks with these scores [heads]."""
        states = np.stack([scores, np.ones_like(scores)], axis=1)
        return cls(states, np.zeros(_columns(head_dim), np.float32))


def attention_scratch(threads: int, heads: int, kv_heads: int, head_dim: int) -> AttentionScratch:
    """Scratch memory for so many threads."""
    group = heads // kv_heads
    *_offsets, size = _scratch_offsets(group, head_dim)
    part = _part_bytes(group, head_dim)
    return AttentionScratch(
        np.empty((threads, size), np.uint8), np.zeros((MOST_PARTS, part), np.uint8)
    )


def attention_arguments(
    qkv: NDArray[np.float32],
    keys: NDArray[Any],
    values: NDArray[Any],
    out: NDArray[np.float32],
    table: NDArray[np.int32],
    positions: NDArray[np.int32],
    items: NDArray[np.int32],
    scratch: AttentionScratch,
    *,
    heads: int,
    table_stride_word: int,
    window: int | None,
    scale: float,
    cap: float | None,
    sinks: AttentionSinks | None = None,
) -> NDArray[np.int64]:
    """The words that `attention_task` reads; the arrays must live and stay where they are.

    The header's word `table_stride_word` says at run time how many columns lie between two rows
    of the table; the extents of the other arrays are not looked at then.

    Args:
        qkv: [tokens, columns] float32, rows contiguous; a row starts with the query heads.
        keys: [blocks, kv_heads, head_dim, block_size] float32 or float16, C-contiguous: one layer
            of the pool, the batch's own keys already in it.
        values: [blocks, kv_heads, block_size, head_dim], of the same type.
        out: [tokens, columns] float32, rows contiguous; the items' parts of its first
            heads * head_dim columns are written.
        table: int32, C-contiguous: the pool block that holds key block j of a sequence.
        positions: [tokens] int32, ascending by one within an item.
        items: [items, ITEM_WORDS] int32: sequence; K/V head; first token; token to stop before, of
            at most QUERY_TILE; and, where a token's ranges are spread over several items, which
            of these parts it is (part i is the i-th range that the token sees), how many there
            are (1: all ranges in this item) and the first one's row of `AttentionScratch.parts`.
        scratch: from `attention_scratch`.
        heads: query heads.
        table_stride_word: index of a header word.
        window: a query sees itself and the window - 1 positions before it; None: all before it.
        scale: factor on query-key products.
        cap: soft cap of the scaled products; None: none.
        sinks: of the query heads; None: none.
    """
    kv_heads, block_size, head_dim = pool_shape(keys, values)
    assert heads % kv_heads == 0, (heads, kv_heads)
    assert items.shape[1:] == (ITEM_WORDS,), items.shape
    assert {table.dtype, positions.dtype, items.dtype} == {np.dtype(np.int32)}, "not int32"
    group = heads // kv_heads
    words = [
        *rows_at(qkv, heads * head_dim),
        *(address_of(keys), address_of(values)),
        *rows_at(out, heads * head_dim),
        *(address_of(table), table_stride_word, address_of(positions), address_of(items)),
        *(kv_heads, block_size, head_dim, _columns(head_dim), group, *_panel(group)),
        *(window or 0, real_word(scale), real_word(cap or 0.0)),
        *_sink_words(sinks, heads, head_dim),
        *_kernels(kv_dtype(keys), group),
        *_scratch_words(scratch, group, head_dim),
    ]
    return np.array(words, np.int64)


def _kernels(dtype: KVDtype, group: int) -> list[int]:
    """Whether K and V are float16, and the addresses of what works on a span of them."""
    panel_heads, panel_tokens = _panel(group)
    return [
        int(dtype == "float16"),
        *_tiles(dtype, panel_heads),
        *_tiles("float32", panel_heads),
        *_tiles("float32", panel_heads * panel_tokens),
        take_span.address,
    ]


def _scratch_words(scratch: AttentionScratch, group: int, head_dim: int) -> list[int]:
    """Where scratch memory of the right shape is, and where its parts begin."""
    *offsets, size = _scratch_offsets(group, head_dim)
    part_bytes = _part_bytes(group, head_dim)
    assert scratch.threads.shape[1] >= size, (scratch.threads.shape, size)
    assert scratch.parts.shape == (MOST_PARTS, part_bytes), (scratch.parts.shape, part_bytes)
    return [
        address_of(scratch.threads),
        scratch.threads.strides[0],
        address_of(scratch.parts),
        part_bytes,
        *offsets,
    ]


def _sink_words(sinks: AttentionSinks | None, heads: int, head_dim: int) -> tuple[int, int]:
    if sinks is None:
        return 0, 0
    assert sinks.states.shape == (heads, 2), (sinks.states.shape, heads)
    assert sinks.states.dtype == np.float32, sinks.states.dtype
    assert sinks.no_sums.size == _columns(head_dim), (sinks.no_sums.size, head_dim)
    return address_of(sinks.states), address_of(sinks.no_sums)


def _tiles(dtype: KVDtype, rows: int) -> tuple[int, int]:
    """Addresses of the tiles of Q K^T and P V."""
    return score_tile(dtype, rows).address, value_tile(dtype, rows).address


def _panel(group: int) -> tuple[int, int]:
    """Query heads and tokens of a panel: all heads of a K/V head if they fit, else equal shares."""
    heads = max(n for n in range(1, MOST_ROWS + 1) if group % n == 0)
    return heads, MOST_ROWS // heads if heads == group else 1


def _columns(head_dim: int) -> int:
    """Columns of a row of sums: whole vectors."""
    return -(-head_dim // lanes()) * lanes()


def _part_bytes(group: int, head_dim: int) -> int:
    """Bytes of what a part hands in: a counter in a line of its own, states and sums of a token."""
    return _lines(_LINE + group * (8 + 4 * _columns(head_dim)))


def _lines(size: int) -> int:
    """Bytes of whole cache lines."""
    return -(-size // _LINE) * _LINE


def _scratch_offsets(group: int, head_dim: int) -> list[int]:
    """Where the parts of a thread's scratch memory begin (BASES on), and where the last ends."""
    rows, columns = QUERY_TILE * group, _columns(head_dim)
    state, sums = 8 * rows, 4 * rows * columns
    sizes = (
        2 * 8 * (SPAN // lanes()),
        8 * rows,
        4 * SPAN * rows,
        *(state, sums) * 2,
        4 * SPAN * head_dim,
        4 * SPAN * columns,
    )
    return list(accumulate(map(_lines, sizes), initial=0))

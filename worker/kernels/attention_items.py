"""How a step's attention is cut into items of work."""

import numpy as np
from numpy.typing import NDArray

from .attention import (
    END,
    FIRST,
    ITEM_WORDS,
    KV_HEAD,
    MOST_PARTS,
    PART,
    PARTS,
    QUERY_TILE,
    RANGE,
    SEQUENCE,
    SLOT,
)
from .jit import kernel

_ITEMS_A_THREAD = 4  # when there are fewer, long ones are cut into parts


def most_attention_items(tokens: int, sequences: int, kv_heads: int) -> int:
    """Most items that such a batch can have."""
    # Of a sequence's tiles only the last one is not full, so there is at most one of these each.
    return (tokens // QUERY_TILE + sequences) * kv_heads + MOST_PARTS


def attention_items(
    query_start: NDArray[np.int32],
    positions: NDArray[np.int32],
    kv_heads: int,
    window: int | None,
    threads: int,
    items: NDArray[np.int32],
) -> int:
    """Cut attention into items, see `attention_arguments`; gives their number.

    An item is a tile of up to QUERY_TILE queries of a sequence and a K/V head. Where there are too
    few for the threads, the ranges that a lone query sees become items of their own. No cut
    changes a result.

    Args:
        query_start: [S + 1] int32: sequence s owns tokens query_start[s] to query_start[s + 1].
        positions: [T] int32, of each token in its sequence.
        kv_heads: K/V heads of the layers.
        window: of the layers.
        threads: that will share the items.
        items: [`most_attention_items` or more, ITEM_WORDS] int32, for the result.
    """
    room = most_attention_items(len(positions), len(query_start) - 1, kv_heads)
    assert items.shape[0] >= room, (items.shape, room)
    assert items.shape[1] == ITEM_WORDS, items.shape
    return int(_cut(query_start, positions, kv_heads, window or 0, threads, items))


@kernel
def _cut(
    query_start: NDArray[np.int32],
    positions: NDArray[np.int32],
    kv_heads: int,
    window: int,
    threads: int,
    items: NDArray[np.int32],
) -> int:
    """Write the items, the longest first up to a factor of two: a long one is no good last."""
    tiles, longest = 0, 0
    for s in range(len(query_start) - 1):
        for first in range(query_start[s], query_start[s + 1], QUERY_TILE):
            tiles += 1
            work = _work(positions, first, min(first + QUERY_TILE, query_start[s + 1]), window)
            longest = max(longest, work)
    spread = threads > 1 and tiles * kv_heads < _ITEMS_A_THREAD * threads
    done, count, slots = 0, 0, 0
    while done < tiles:
        for s in range(len(query_start) - 1):
            for first in range(query_start[s], query_start[s + 1], QUERY_TILE):
                end = min(first + QUERY_TILE, query_start[s + 1])
                work = _work(positions, first, end, window)
                if longest // 2 < work <= longest:
                    lone = spread and end - first == 1
                    parts = _ranges(int(positions[first]), window) if lone else 1
                    if slots + kv_heads * parts > MOST_PARTS:
                        parts = 1
                    _put_tile(items[count:], s, first, end, kv_heads, parts, slots)
                    count += kv_heads * parts
                    slots += kv_heads * parts if parts > 1 else 0
                    done += 1
        longest //= 2
    return count


@kernel
def _work(positions: NDArray[np.int32], first: int, end: int, window: int) -> int:
    """Queries of a tile times keys that the last one sees."""
    seen = int(positions[end - 1]) + 1
    return (end - first) * (min(seen, window) if window > 0 else seen)


@kernel
def _ranges(position: int, window: int) -> int:
    """Ranges that a query sees."""
    low = max(0, position - window + 1) if window > 0 else 0
    return position // RANGE - low // RANGE + 1


@kernel
def _put_tile(
    items: NDArray[np.int32],
    sequence: int,
    first: int,
    end: int,
    kv_heads: int,
    parts: int,
    slots: int,
) -> None:
    """Write a tile's items, head by head, part by part; `slots` are taken already."""
    for i in range(kv_heads * parts):
        item, head, part = items[i], i // parts, i % parts
        item[SEQUENCE], item[KV_HEAD], item[FIRST], item[END] = sequence, head, first, end
        item[PART], item[PARTS] = part, parts
        item[SLOT] = slots + head * parts if parts > 1 else 0

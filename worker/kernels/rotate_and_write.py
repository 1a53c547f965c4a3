"""What happens to queries, keys and values between their projection and attention, as one task.

Heads of queries and keys are normalised (where a model does so) and rotated in place; then keys and
values go to their slots of the pool. A token's row is in the nearest cache all the while.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .kv_write import write_token
from .native import address_of, float32s, int32s, int64s, real, real_word, task, uint8s, word
from .rms_norm import normalize_row
from .rope import rotate_head
from .task_arguments import kv_dtype, pool_shape, rows_at

# Arguments of `rotate_and_write_task`, in this order.
(
    QKV,
    QKV_STRIDE,
    POSITIONS,
    SLOTS,
    KEYS,
    VALUES,
    HEADS,
    KV_HEADS,
    BLOCK_SIZE,
    HEAD_DIM,
    IS_HALF,
    ANGLES,
    DISTANCE,
    QUERY_NORM,
    KEY_NORM,
    EPS,
    TABLES_WORD,
    TOKENS_WORD,
    TOKENS_AN_ITEM_WORD,
    IS_LONG,
) = range(20)


@task
def rotate_and_write_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Rotate and write a run of tokens, see `rotate_and_write_arguments`."""
    run = word(header, word(arguments, TOKENS_AN_ITEM_WORD))
    tokens = word(header, word(arguments, TOKENS_WORD))
    end = min((item + 1) * run, tokens)
    positions = int32s(word(arguments, POSITIONS), tokens)
    slots = int64s(word(arguments, SLOTS), tokens)
    heads, dim = word(arguments, HEADS), word(arguments, HEAD_DIM)
    for t in range(item * run, end):
        row = word(arguments, QKV) + t * word(arguments, QKV_STRIDE)
        key = row + 4 * heads * dim
        tables = header + 8 * _tables_word(arguments, t)
        _turn_heads(tables, arguments, row, heads, word(arguments, QUERY_NORM), int(positions[t]))
        _turn_heads(
            tables, arguments, key, word(arguments, KV_HEADS), word(arguments, KEY_NORM),
            int(positions[t]),
        )  # fmt: skip
        write_token(
            key, int(slots[t]), word(arguments, KEYS), word(arguments, VALUES),
            word(arguments, KV_HEADS), word(arguments, BLOCK_SIZE), dim, word(arguments, IS_HALF),
        )  # fmt: skip


@kernel
def _tables_word(arguments: int, token: int) -> int:
    """Index of the header word for a token's tables: long sequences may have other ones behind."""
    is_long = word(arguments, IS_LONG)
    behind = is_long != 0 and uint8s(is_long, token + 1)[token] != 0
    return int(word(arguments, TABLES_WORD) + (2 if behind else 0))


@kernel
def _turn_heads(
    tables: int, arguments: int, first: int, heads: int, weight: int, position: int
) -> None:
    """Normalise, if there is a weight, and rotate heads that lie side by side."""
    dim, angles = word(arguments, HEAD_DIM), word(arguments, ANGLES)
    row = 4 * angles * position
    cos = float32s(word(tables, 0) + row, angles)
    sin = float32s(word(tables, 1) + row, angles)
    for h in range(heads):
        head = first + 4 * h * dim
        if weight != 0:
            x = float32s(head, dim)
            normalize_row(x, float32s(weight, dim), x, real(arguments, EPS))
        rotate_head(float32s(head, 2 * angles), cos, sin, word(arguments, DISTANCE))


def rotate_and_write_arguments(
    qkv: NDArray[np.float32],
    positions: NDArray[np.int32],
    slots: NDArray[np.int64],
    keys: NDArray[Any],
    values: NDArray[Any],
    *,
    heads: int,
    angles: int,
    distance: int,
    query_norm: NDArray[np.float32] | None,
    key_norm: NDArray[np.float32] | None,
    eps: float,
    tables_word: int,
    tokens_word: int,
    tokens_an_item_word: int,
    is_long: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """The words that `rotate_and_write_task` reads; the arrays must live and stay where they are.

    Args:
        qkv: [tokens, columns] float32, rows contiguous; a row starts with the query heads, then the
            keys of all K/V heads, then their values. Queries and keys are changed in place.
        positions: [tokens] int32.
        slots: [tokens] int64, block * block_size + offset of each token.
        keys: [blocks, kv_heads, head_dim, block_size] float32 or float16, C-contiguous: one layer
            of the pool.
        values: [blocks, kv_heads, block_size, head_dim], of the same type.
        heads: query heads.
        angles: pairs of a head that rotate; 0 for none.
        distance: of a pair's members, 1 or `angles`, see `rope`.
        query_norm: [head_dim] weight of the norm of each query head; None: no norm.
        key_norm: the same of each key head.
        eps: of these norms.
        tables_word: index of the header word that holds the address of the cosines, float32
            [positions, angles]; the next word holds that of the sines. Not read without angles.
        is_long: [tokens] bool, tokens whose tables the two words behind hold; None: no token's.
        tokens_word: index of the header word with the number of tokens.
        tokens_an_item_word: index of the header word with the tokens of an item.
    """
    kv_heads, block_size, head_dim = pool_shape(keys, values)
    assert positions.dtype == np.int32, positions.dtype
    assert slots.dtype == np.int64, slots.dtype
    assert 2 * angles <= head_dim, (angles, head_dim)
    assert distance in (1, angles), (distance, angles)
    words = [
        *rows_at(qkv, (heads + 2 * kv_heads) * head_dim),
        *(address_of(positions), address_of(slots), address_of(keys), address_of(values)),
        *(heads, kv_heads, block_size, head_dim, int(kv_dtype(keys) == "float16")),
        *(angles, distance),
        *(_norm_address(query_norm, head_dim), _norm_address(key_norm, head_dim), real_word(eps)),
        *(tables_word, tokens_word, tokens_an_item_word),
        0 if is_long is None else address_of(is_long),
    ]
    return np.array(words, np.int64)


def _norm_address(weight: NDArray[np.float32] | None, head_dim: int) -> int:
    """Where the weight of a norm is, 0 for no norm."""
    if weight is None:
        return 0
    assert weight.shape == (head_dim,), (weight.shape, head_dim)
    assert weight.dtype == np.float32, weight.dtype
    return address_of(weight)

"""Writing new keys and values into their slots of the pool.

The pool holds the keys of a block as [kv_heads, head_dim, block_size] and its values as [kv_heads,
block_size, head_dim]: attention loads many slots of a dimension of the keys at once, and many
dimensions of a slot of the values.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .narrow import narrow, scatter
from .native import address_of
from .task_arguments import kv_dtype, pool_shape, rows_at


def kv_write(
    qkv: NDArray[np.float32],
    keys: NDArray[Any],
    values: NDArray[Any],
    slots: NDArray[np.int64],
) -> None:
    """Copy each token's keys and values to its slot.

    Args:
        qkv: [tokens, columns] float32, C-contiguous; a row ends with the keys of all K/V heads and
            then the values of all K/V heads.
        keys: [blocks, kv_heads, head_dim, block_size] float32 or float16, C-contiguous: one layer
            of the pool.
        values: [blocks, kv_heads, block_size, head_dim], of the same type.
        slots: [tokens] int64, block * block_size + offset of each token.
    """
    kv_heads, block_size, head_dim = pool_shape(keys, values)
    first_key = qkv.shape[1] - 2 * kv_heads * head_dim
    assert slots.shape == (len(qkv),), (slots.shape, qkv.shape)
    assert first_key >= 0, (qkv.shape, values.shape)
    base, stride = rows_at(qkv, qkv.shape[1])
    pool = (address_of(keys), address_of(values), kv_heads, block_size, head_dim)
    _kv_write(base + 4 * first_key, stride, slots, *pool, int(kv_dtype(keys) == "float16"))


@kernel
def _kv_write(
    kv: int,
    stride: int,
    slots: NDArray[np.int64],
    keys: int,
    values: int,
    kv_heads: int,
    block_size: int,
    head_dim: int,
    is_half: int,
) -> None:
    """kv: address of the first token's keys, `stride` bytes before the next one's."""
    for t in range(len(slots)):
        row = kv + t * stride
        write_token(row, int(slots[t]), keys, values, kv_heads, block_size, head_dim, is_half)


@kernel
def write_token(
    kv: int,
    slot: int,
    keys: int,
    values: int,
    kv_heads: int,
    block_size: int,
    head_dim: int,
    is_half: int,
) -> None:
    """Copy the keys and values of one token, float32 side by side at `kv`, to its slot."""
    size = 2 if is_half != 0 else 4
    block, offset = slot // block_size, slot % block_size
    for h in range(kv_heads):
        head = (block * kv_heads + h) * block_size * head_dim
        key = kv + 4 * h * head_dim
        scatter(key, keys + (head + offset) * size, block_size * size, head_dim, is_half)
        value = key + 4 * kv_heads * head_dim
        narrow(value, values + (head + offset * head_dim) * size, head_dim, is_half)

"""Writing new keys and values into their slots of the pool."""

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel


def kv_write(
    qkv: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    slots: NDArray[np.int64],
) -> None:
    """Copy each token's keys and values to its slot.

    Args:
        qkv: [tokens, columns] float32, C-contiguous; a row ends with the keys of all K/V heads and
            then the values of all K/V heads.
        keys: [blocks, kv_heads, block_size, head_dim] float32, C-contiguous: one layer of the pool.
        values: the same shape.
        slots: [tokens] int64, block * block_size + offset of each token.
    """
    _blocks, kv_heads, block_size, head_dim = keys.shape
    columns = qkv.shape[1]
    first_key = columns - 2 * kv_heads * head_dim
    assert values.shape == keys.shape, (values.shape, keys.shape)
    assert slots.shape == (len(qkv),), (slots.shape, qkv.shape)
    assert first_key >= 0, (columns, keys.shape)
    shape = (columns, first_key, kv_heads, block_size, head_dim)
    _kv_write(flat(qkv), flat(keys), flat(values), slots, *shape)


@kernel
def _kv_write(
    qkv: NDArray[np.float32],
    keys: NDArray[np.float32],
    values: NDArray[np.float32],
    slots: NDArray[np.int64],
    columns: int,
    first_key: int,
    kv_heads: int,
    block_size: int,
    head_dim: int,
) -> None:
    """Flat: qkv [tokens * columns], keys and values [blocks * kv_heads * block_size * head_dim]."""
    for t in range(len(slots)):
        block, offset = slots[t] // block_size, slots[t] % block_size
        for h in range(kv_heads):
            target = ((block * kv_heads + h) * block_size + offset) * head_dim
            key = t * columns + first_key + h * head_dim
            value = key + kv_heads * head_dim
            for d in range(head_dim):
                keys[target + d] = qkv[key + d]
                values[target + d] = qkv[value + d]

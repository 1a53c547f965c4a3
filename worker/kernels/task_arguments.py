"""What the builders of task arguments share: checks of arrays that become addresses."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

KVDtype = Literal["float32", "float16"]


def kv_dtype(array: NDArray[Any]) -> KVDtype:
    """Type of the numbers of a K/V array."""
    assert array.dtype in (np.float32, np.float16), array.dtype
    return "float16" if array.dtype == np.float16 else "float32"


def pool_shape(keys: NDArray[Any], values: NDArray[Any]) -> tuple[int, int, int]:
    """Check one layer of the pool, and give its K/V heads, slots of a block and values of a head.

    Args:
        keys: [blocks, kv_heads, head_dim, block_size].
        values: [blocks, kv_heads, block_size, head_dim], of the same type.
    """
    _blocks, kv_heads, block_size, head_dim = values.shape
    assert keys.shape == (*values.shape[:2], head_dim, block_size), (keys.shape, values.shape)
    assert keys.dtype == values.dtype, (keys.dtype, values.dtype)
    return kv_heads, block_size, head_dim


def rows_at(array: NDArray[np.float32], width: int) -> tuple[int, int]:
    """Address of float32 rows of at least `width` columns, and the bytes from one to the next."""
    assert array.dtype == np.float32, f"{array.dtype} where float32 was expected"
    assert array.ndim == 2, array.shape
    assert array.shape[1] >= width, (array.shape, width)
    assert array.strides[1] == 4, f"rows with strides {array.strides} are not contiguous"
    return int(array.__array_interface__["data"][0]), array.strides[0]

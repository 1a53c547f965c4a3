"""Writing keys and values into paged slots."""

import numpy as np
import pytest

from worker.kernels.kv_write import kv_write


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dim", [1, 6, 16, 37, 64])
def test_each_token_goes_to_its_slot_and_nothing_else_changes(dtype, dim):
    """Three tokens of two blocks, two K/V heads; all other slots keep their values."""
    block_size, kv_heads = 4, 2
    random = np.random.default_rng(0)
    qkv = random.standard_normal((3, 10 + 2 * kv_heads * dim), np.float32)
    keys = random.standard_normal((5, kv_heads, dim, block_size)).astype(dtype)
    values = random.standard_normal((5, kv_heads, block_size, dim)).astype(dtype)
    expected_keys, expected_values = keys.copy(), values.copy()
    slots = np.array([4 * 4 + 1, 0 * 4 + 3, 4 * 4 + 2], np.int64)
    for token, slot in enumerate(slots):
        block, offset = divmod(int(slot), block_size)
        new = qkv[token, 10:].reshape(2, kv_heads, dim)
        expected_keys[block, :, :, offset], expected_values[block, :, offset] = new
    kv_write(qkv, keys, values, slots)
    assert np.array_equal(expected_keys, keys)
    assert np.array_equal(expected_values, values)


def test_what_float16_cannot_hold_becomes_infinite():
    """65,520 is the first number that rounds to infinity; NaN stays NaN."""
    qkv = np.array([[65519, 65520, -1e6, np.nan]], np.float32)
    keys, values = np.zeros((1, 1, 2, 1), "f2"), np.zeros((1, 1, 1, 2), "f2")
    kv_write(qkv, keys, values, np.zeros(1, np.int64))
    assert [65504, np.inf] == keys.ravel().tolist()
    assert np.array_equal([-np.inf, np.nan], values.ravel(), equal_nan=True)

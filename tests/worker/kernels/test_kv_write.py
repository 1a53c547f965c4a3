"""Writing keys and values into paged slots."""

import numpy as np

from worker.kernels.kv_write import kv_write


def test_each_token_goes_to_its_slot_and_nothing_else_changes():
    """Three tokens of two blocks, two K/V heads; all other slots keep their values."""
    block_size, kv_heads, dim = 4, 2, 6
    random = np.random.default_rng(0)
    qkv = random.standard_normal((3, 10 + 2 * kv_heads * dim), np.float32)
    keys = random.standard_normal((5, kv_heads, block_size, dim), np.float32)
    values = random.standard_normal(keys.shape, np.float32)
    expected_keys, expected_values = keys.copy(), values.copy()
    slots = np.array([4 * 4 + 1, 0 * 4 + 3, 4 * 4 + 2], np.int64)
    for token, slot in enumerate(slots):
        block, offset = divmod(int(slot), block_size)
        expected_keys[block, :, offset] = qkv[token, 10 : 10 + 12].reshape(kv_heads, dim)
        expected_values[block, :, offset] = qkv[token, 22:].reshape(kv_heads, dim)
    kv_write(qkv, keys, values, slots)
    assert np.array_equal(expected_keys, keys)
    assert np.array_equal(expected_values, values)

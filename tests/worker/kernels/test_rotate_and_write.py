"""Norm, rotation and K/V write as one task: the same bits as one kernel after the other."""

import numpy as np
import pytest

from tests.worker.kernels.array_kernels import rms_norm, rope
from worker.kernels.kv_write import kv_write
from worker.kernels.native import address_of
from worker.kernels.rotate_and_write import rotate_and_write_arguments, rotate_and_write_task

HEADS, KV_HEADS, TOKENS, BLOCK_SIZE, EPS = 4, 2, 7, 4, 1e-6


class _Case:
    """Random tokens, a pool and tables; rows of qkv have unused columns at their end."""

    def __init__(self, dim, angles, dtype, seed=0):
        random = np.random.default_rng(seed)
        self.dim, self.width = dim, (HEADS + 2 * KV_HEADS) * dim
        self.qkv = random.standard_normal((TOKENS + 2, self.width + 5), np.float32)
        self.positions = random.integers(0, 50, TOKENS + 2).astype(np.int32)
        self.slots = random.permutation(6 * BLOCK_SIZE)[: TOKENS + 2].astype(np.int64)
        self.keys = random.standard_normal((6, KV_HEADS, dim, BLOCK_SIZE)).astype(dtype)
        self.values = random.standard_normal((6, KV_HEADS, BLOCK_SIZE, dim)).astype(dtype)
        self.cos, self.sin = random.uniform(-1, 1, (2, 50, angles)).astype(np.float32)
        self.norms = random.uniform(0.5, 2, (2, dim)).astype(np.float32)


def _one_by_one(case, distance, norms):
    """Norms, rotation and write of the first TOKENS tokens by the kernels of arrays."""
    used = np.ascontiguousarray(case.qkv[:TOKENS, : case.width])
    for weight, first, heads in zip(norms, (0, HEADS * case.dim), (HEADS, KV_HEADS), strict=True):
        if weight is not None:
            rms_norm(used, weight, used, EPS, first, heads)
    positions = case.positions[:TOKENS]
    rope(used, positions, case.cos, case.sin, HEADS + KV_HEADS, case.dim, distance)
    kv_write(used, case.keys, case.values, case.slots[:TOKENS])
    case.qkv[:TOKENS, : case.width] = used


def _as_task(case, distance, norms, run):
    """The same by items of `run` tokens."""
    header = np.array([0, TOKENS, run, address_of(case.cos), address_of(case.sin)], np.int64)
    arguments = rotate_and_write_arguments(
        case.qkv, case.positions, case.slots, case.keys, case.values,
        heads=HEADS, angles=case.cos.shape[1], distance=distance,
        query_norm=norms[0], key_norm=norms[1], eps=EPS,
        tables_word=3, tokens_word=1, tokens_an_item_word=2,
    )  # fmt: skip
    for item in range(-(-TOKENS // run)):
        rotate_and_write_task(address_of(header), address_of(arguments), item, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["pairs", "halves"])
@pytest.mark.parametrize(("dim", "angles"), [(64, 32), (16, 8), (20, 5), (2, 1), (256, 128)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_the_task_is_norm_rotation_and_write_in_a_row(dtype, layout, dim, angles, has_norms):
    """Unused columns, tokens past the end and other slots of the pool stay as they were."""
    distance = 1 if layout == "pairs" else angles
    for run in (1, 3, 16):
        expected, found = _Case(dim, angles, dtype), _Case(dim, angles, dtype)
        norms = found.norms if has_norms else (None, None)
        _one_by_one(expected, distance, norms)
        _as_task(found, distance, norms, run)
        assert np.array_equal(expected.qkv, found.qkv)
        assert np.array_equal(expected.keys, found.keys)
        assert np.array_equal(expected.values, found.values)

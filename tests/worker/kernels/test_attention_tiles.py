"""The two products of attention in registers: exact chains of fused multiply-adds."""

import numpy as np
import pytest

from worker.kernels.attention_tiles import MOST_ROWS, SPAN, lanes, score_tile, value_tile
from worker.kernels.native import address_of

GROUPS = SPAN // lanes()


def _chain(a, b):
    """Sum of products [..., n] over the last axis in order; each step is rounded once."""
    total = np.zeros(a.shape[:-1], np.float32)
    for i in range(a.shape[-1]):
        exact = a[..., i].astype(np.float64) * b[..., i] + total
        total = exact.astype(np.float32)
    return total


def _numbers(random, shape, dtype):
    """Numbers of few bits: float64 holds any product plus sum exactly, float32 does not."""
    return (random.integers(-999, 1000, shape) / 64).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize("dim", [1, 19, 64])
def test_scores_are_chains_over_the_dimensions(rows, dim, dtype):
    """Groups lie anywhere; those past the ones asked for may stay as they were."""
    random = np.random.default_rng(rows)
    queries = _numbers(random, (rows, dim), np.float32)
    keys = _numbers(random, (GROUPS, dim, lanes()), dtype)
    order = random.permutation(GROUPS)
    places = np.array([address_of(keys) + keys[0].nbytes * int(g) for g in order], np.int64)
    starts = np.array([address_of(row) for row in queries], np.int64)
    expected = np.concatenate(
        [_chain(queries[:, None], keys[g].T[None].astype("f4")) for g in order], axis=1
    )
    for groups in (1, GROUPS):
        scores = np.full((rows, SPAN), np.nan, np.float32)
        score_tile(dtype, rows)(
            address_of(starts), address_of(places), lanes() * keys.itemsize, dim,
            address_of(scores), groups,
        )  # fmt: skip
        seen = groups * lanes()
        assert np.array_equal(expected[:, :seen], scores[:, :seen])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize("vectors", [1, 3, 4, 7])
def test_values_are_chains_over_the_slots_asked_for(rows, vectors, dtype):
    """On top of what is there; slots outside, NaN here, are not read into any sum."""
    random = np.random.default_rng(rows)
    dim = vectors * lanes()
    for low, high in ((0, 1), (0, SPAN), (5, 50), (lanes(), lanes() + 3)):
        weights = np.full((rows, SPAN), np.nan, np.float32)
        weights[:, low:high] = _numbers(random, (rows, high - low), np.float32)
        values = np.full((SPAN, dim), np.nan, dtype)
        values[low:high] = _numbers(random, (high - low, dim), dtype)
        sums = _numbers(random, (rows, dim), np.float32)
        places = address_of(values) + np.arange(GROUPS) * lanes() * values.strides[0]
        first = np.ones((rows, dim, 1), np.float32)
        a = np.concatenate([first, np.repeat(weights[:, None, low:high], dim, 1)], axis=2)
        b = np.concatenate(
            [sums[..., None], np.repeat(values.T[None, :, low:high], rows, 0)], axis=2
        )
        expected = _chain(a, b)
        value_tile(dtype, rows)(
            address_of(weights), address_of(places), values.strides[0], low, high,
            address_of(sums), dim,
        )  # fmt: skip
        assert np.array_equal(expected, sums)

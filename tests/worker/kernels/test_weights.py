"""Sums of weights against plain ones, exact and estimated."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.naive_sampler import total_of, weights_of
from worker.kernels.estimate import DOUBT, can_estimate, estimate_weights
from worker.kernels.scratch import BLOCK, make_scratch
from worker.kernels.selection import find_maxima
from worker.kernels.weights import Weighing, sum_weights

from .test_selection import row_of

SIZES = [1, 3, 4, 7, 8, 12, 15, 64, 71, 511, 512, 513, 516, 1023, 1024, 3001]


def summed(kernel, row, temperature=1.0, min_p=0.0):
    """What a kernel sums to, and its prefixes."""
    scratch = make_scratch(row.size)
    how = Weighing(float(find_maxima(row, scratch.maxima)), temperature, min_p)
    return kernel(row, how, scratch), scratch.prefixes


def naive_prefixes(weights):
    """The running sum at the end of each block."""
    ends = [min(end, len(weights)) for end in range(BLOCK, len(weights) + BLOCK, BLOCK)]
    return np.cumsum(weights)[np.array(ends) - 1]


@pytest.mark.parametrize("temperature", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("size", SIZES)
def test_sums_equal_the_naive_ones(size, temperature):
    """Bit for bit, and up to the end of each block nearly so."""
    row = np.random.default_rng(size).normal(0, 5, size).astype(np.float32)
    total, prefixes = summed(sum_weights, row, temperature, 1e-4)
    weights = weights_of(row, temperature, 1e-4)
    assert total_of(weights) == total
    np.testing.assert_allclose(prefixes, naive_prefixes(weights), rtol=1e-13)


@pytest.mark.parametrize("temperature", [1e-5, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("top", [-800.0, 0.0, 700.0, 1e30])
def test_groups_of_weights_that_are_zero_change_nothing(temperature, top):
    """Also where a weight is min_p exactly, or the least that there is, in a group of its own."""
    row = np.full(1000, -np.inf, np.float32)
    row[500] = top
    depths = np.array([3.0, 5.0, 699.0, 700.0, 701.0]) * temperature
    row[[0, 100, 700, 900, 999]] = np.float32(top) - depths.astype(np.float32)
    for min_p in (0.0, *weights_of(row, temperature, 0.0)[[0, 100, 700, 900, 999]].tolist()):
        total, _ = summed(sum_weights, row, temperature, min_p)
        assert total_of(weights_of(row, temperature, min_p)) == total


@settings(deadline=None)
@given(
    st.sampled_from(["normal", "integers", "ties", "ascending", "descending", "special"]),
    st.sampled_from([1, 15, 16, 17, 600, 20_000]),
    st.sampled_from([1e-3, 0.03, 0.3, 1.0, 5.0, 100.0, 1e3]),
    st.integers(0, 2**32),
)
def test_estimates_are_as_good_as_they_say(kind, size, temperature, seed):
    """All prefixes, within half of what is allowed."""
    row = row_of(kind, size, seed)
    if not np.isfinite(row.max()):
        return
    total, prefixes = summed(estimate_weights, row, temperature)
    weights = weights_of(row, temperature, 0.0)
    assert abs(total - weights.sum()) <= 0.5 * DOUBT * weights.sum()
    assert np.abs(prefixes - naive_prefixes(weights)).max() <= 0.5 * DOUBT * weights.sum()


@pytest.mark.parametrize("depth", [0.3, 7.7, 12.1, 16.9, 40.0, 86.9, 87.5, 300.0])
def test_estimates_of_tokens_that_are_all_equally_deep(depth):
    """Where every weight is off in the same direction."""
    row = np.full(100_000, -depth, np.float32)
    row[777] = 0.0
    total, _ = summed(estimate_weights, row)
    expected = weights_of(row, 1.0, 0.0).sum()
    assert abs(total - expected) <= 0.5 * DOUBT * expected


@pytest.mark.parametrize(
    ("temperature", "min_p", "expected"),
    [(1.0, 0.0, True), (1e-4, 0.0, False), (1e4, 0.0, False), (1.0, 1e-9, False)],
)
def test_what_float32_cannot_hold_is_not_estimated(temperature, min_p, expected):
    """Nor is a sum with tokens left out, which costs little."""
    assert expected == can_estimate(Weighing(0.0, temperature, min_p))

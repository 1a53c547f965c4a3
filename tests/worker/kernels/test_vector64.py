"""Weights of tokens and their sums against NumPy."""

import numpy as np
import pytest

from tests.worker.engine.naive_sampler import weights_of
from worker.kernels.jit import kernel
from worker.kernels.vector64 import add_halves, four_lanes, no_sums, weight, weights8


@kernel
def _one_by_one(row, top, temperature, min_p, weights):
    for i in range(row.size):
        weights[i] = weight(row[i], top, temperature, min_p)


@kernel
def _sums(row, top, temperature, min_p):
    sums = no_sums()
    for i in range(0, row.size, 8):
        sums = add_halves(sums, weights8(row, i, top, temperature, min_p))
    return four_lanes(sums)


def weigh(row, temperature=1.0, min_p=0.0):
    """float64 [n], token by token."""
    weights = np.empty(row.size)
    _one_by_one(row, float(row.max()), temperature, min_p, weights)
    return weights


@pytest.mark.parametrize("temperature", [5e-324, 0.1, 1.0, 7.0, 100.0])
@pytest.mark.parametrize("size", [8, 64, 4096])
def test_weights_equal_the_naive_ones(temperature, size):
    """Bit for bit."""
    row = np.random.default_rng(size).normal(0, 5, size).astype(np.float32)
    assert weights_of(row, temperature, 0.0).tolist() == weigh(row, temperature).tolist()


def test_weights_are_exponentials():
    """To two units in the last place of float64, down to the least weight there is."""
    row = -np.linspace(0, 699, 5000, dtype=np.float32)
    expected = np.exp(row.astype(np.float64))
    np.testing.assert_allclose(weigh(row), expected, rtol=5e-16, atol=0)


def test_weights_far_below_the_largest_are_zero():
    """No overflow and no NaN, however small the temperature; minus infinity weighs nothing."""
    row = np.array([0, -3e38, -1, -np.inf], np.float32)
    assert [1.0, 0.0, 0.0, 0.0] == weigh(row, 5e-324).tolist()
    assert [1.0, 0.0, 0.0] == weigh(np.array([3e38, 2e38, -np.inf], np.float32), 100).tolist()


def test_a_weight_equal_to_min_p_stays():
    """What is smaller becomes 0."""
    row = np.array([0, 1, 0.5], np.float32)
    border = weigh(row)[2]
    assert [0.0, 1.0, border] == weigh(row, 1.0, border).tolist()


@pytest.mark.parametrize("temperature", [0.1, 1.0, 50.0])
def test_four_sums_stand_side_by_side(temperature):
    """Lane i adds up every fourth weight from i, in order, bit for bit."""
    row = np.random.default_rng(1).normal(0, 5, 1000).astype(np.float32)
    weights = weigh(row, temperature, 1e-3)
    expected = [float(np.cumsum(weights[i::4])[-1]) for i in range(4)]
    assert expected == list(_sums(row, float(row.max()), temperature, 1e-3))

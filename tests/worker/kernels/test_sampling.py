"""Kernels of the sampler against NumPy and plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.kernels.sampling import pick, softmax_weights


@pytest.mark.parametrize("temperature", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("size", [1, 2, 7, 49152])
def test_weights_are_exponentials(temperature, size):
    """To two units in the last place of float64, and so is their sum."""
    logits = np.random.default_rng(size).normal(0, 5, size).astype(np.float32)
    weights = np.empty(size)
    total = softmax_weights(logits, temperature, 0.0, weights)
    expected = np.exp((logits.astype(np.float64) - float(logits.max())) / temperature)
    np.testing.assert_allclose(weights, expected, rtol=5e-16, atol=1e-300)
    assert total == pytest.approx(expected.sum(), rel=1e-13)
    assert weights[logits.argmax()] == 1.0


def test_weights_far_below_the_largest_are_zero():
    """No overflow and no NaN, however small the temperature."""
    weights = np.empty(3)
    softmax_weights(np.array([0, -3e38, -1], np.float32), 5e-324, 0.0, weights)
    assert weights.tolist() == [1.0, 0.0, 0.0]


def test_min_p_drops_small_weights():
    """A weight equal to min_p stays."""
    weights = np.empty(3)
    logits = np.array([0, 1, 0.5], np.float32)
    softmax_weights(logits, 1.0, 0.0, weights)
    border = weights[2]
    assert softmax_weights(logits, 1.0, border, weights) == 1.0 + border
    assert weights.tolist() == [0.0, 1.0, border]


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=30), st.floats(0, 1))
def test_pick_equals_searching_the_running_sum(weights, share):
    """The first index whose running sum exceeds the target; never one of weight 0."""
    weights = np.array(weights)
    if not weights.any():
        return
    target = share * weights.sum()
    expected = np.searchsorted(np.cumsum(weights), target, side="right")
    expected = min(expected, np.flatnonzero(weights)[-1])
    assert pick(weights, target) == expected
    assert weights[pick(weights, target)] > 0

"""A row's softmax over a span: values, masks, and numbers that are not finite."""

import numpy as np
import pytest

from worker.kernels.jit import kernel
from worker.kernels.native import address_of
from worker.kernels.softmax_span import softmax_span


@kernel
def _softmax(scores, low, high, scale, largest):
    return softmax_span(scores, low, high, scale, largest)


def _run(scores, low, high, scale=1.0, largest=-np.inf):
    weights = np.array(scores, np.float32)
    arguments = (low, high, np.float32(scale), np.float32(largest))
    return weights, *_softmax(address_of(weights), *arguments)


@pytest.mark.parametrize(("low", "high"), [(0, 64), (0, 1), (63, 64), (7, 40), (16, 32)])
@pytest.mark.parametrize("largest", [-np.inf, 0.5, 9.0])
def test_weights_and_their_sum_equal_the_naive_twin(low, high, largest):
    """Slots outside hold NaN and get weight 0."""
    scores = np.full(64, np.nan, np.float32)
    scores[low:high] = np.random.default_rng(low).normal(0, 4, high - low)
    weights, greatest, total = _run(scores, low, high, 0.5, largest)
    scaled = scores[low:high].astype(np.float64) * 0.5
    expected = np.exp(scaled - max(scaled.max(), largest))
    assert max(np.float32(scaled.max()), np.float32(largest)) == greatest
    np.testing.assert_allclose(expected, weights[low:high], rtol=2e-6)
    np.testing.assert_allclose(expected.sum(), total, rtol=2e-6)
    assert not weights[:low].any()
    assert not weights[high:].any()


def test_exp_is_accurate_down_to_where_it_becomes_zero():
    """Every weight within 2 units of the last place; e^-87 is the smallest one."""
    scores = -np.linspace(0, 90, 64, dtype=np.float32)
    weights, _, _ = _run(scores, 0, 64)
    expected = np.where(scores < -87, 0, np.exp(scores.astype(np.float64))).astype(np.float32)
    distance = np.abs(expected.view(np.int32).astype(np.int64) - np.abs(weights).view(np.int32))
    assert distance.max() <= 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_makes_the_sum_nan(bad):
    """Wherever it stands; where the row does not see it, it does nothing."""
    for slot in range(64):
        scores = np.zeros(64, np.float32)
        scores[slot] = bad
        assert np.isnan(_run(scores, 0, 64)[2])
        if slot:
            assert slot == _run(scores, 0, slot)[2]


def test_the_order_of_the_sum_is_fixed():
    """Sixteen lanes over four vectors, then halves: the same bits on every machine."""
    scores = np.random.default_rng(1).normal(0, 3, 64).astype(np.float32)
    weights, _, total = _run(scores, 0, 64)
    lanes = weights[:16].copy()
    for vector in (1, 2, 3):
        lanes += weights[16 * vector : 16 * vector + 16]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    assert lanes[0] == total

"""A row's softmax, span by span: values, masks, merging, and numbers that are not finite."""

import numpy as np
import pytest

from worker.kernels.jit import kernel
from worker.kernels.native import address_of
from worker.kernels.softmax_row import COLUMNS, NO_STATE, finish_row, merge_row, update_row


@kernel
def _update(scores, low, high, scale, state, sums, columns):
    update_row(scores, low, high, scale, state, sums, columns)


@kernel
def _merge(state, sums, other_state, other_sums, columns):
    merge_row(state, sums, other_state, other_sums, columns)


@kernel
def _finish(state, sums, out, count):
    finish_row(state, sums, out, count)


class _Row:
    """State and sums of a row; the sums hold NaN before the first score."""

    def __init__(self, columns=COLUMNS):
        self.state = np.array([NO_STATE], np.int64).view(np.float32)
        self.sums = np.full(columns, np.nan, np.float32)

    def update(self, scores, low=0, high=64, scale=1.0):
        """Weights of the scores, a copy."""
        weights = np.array(scores, np.float32)
        places = address_of(self.state), address_of(self.sums), len(self.sums)
        _update(address_of(weights), low, high, np.float32(scale), *places)
        return weights

    def merge(self, other):
        """Take another row's state in."""
        mine = address_of(self.state), address_of(self.sums)
        theirs = address_of(other.state), address_of(other.sums)
        _merge(*mine, *theirs, len(self.sums))

    @property
    def total(self):
        """Of the weights."""
        return self.state[1]


@pytest.mark.parametrize(("low", "high"), [(0, 64), (0, 1), (63, 64), (7, 40), (16, 32)])
@pytest.mark.parametrize("before", [None, 0.5, 9.0])
def test_weights_total_and_sums_equal_the_naive_twin(low, high, before):
    """Slots outside hold NaN and get weight 0; what was there before shrinks to fit."""
    row, totals = _Row(24), 0.0
    if before is not None:
        row.state[:], row.sums[:], totals = (before, 3.0), np.arange(24), 3.0
    scores = np.full(64, np.nan, np.float32)
    scores[low:high] = np.random.default_rng(low).normal(0, 4, high - low)
    weights = row.update(scores, low, high, 0.5)
    scaled = scores[low:high].astype(np.float64) * 0.5
    old = -np.inf if before is None else before
    greatest = max(scaled.max(), old)
    expected, shrink = np.exp(scaled - greatest), np.exp(old - greatest)
    assert np.float32(greatest) == row.state[0]
    np.testing.assert_allclose(expected, weights[low:high], rtol=2e-6)
    np.testing.assert_allclose(totals * shrink + expected.sum(), row.total, rtol=2e-6)
    sums = np.zeros(24) if before is None else np.arange(24) * shrink
    np.testing.assert_allclose(sums, row.sums, rtol=2e-6)
    assert not weights[:low].any()
    assert not weights[high:].any()


def test_exp_is_accurate_down_to_where_it_becomes_zero():
    """Every weight within 2 units of the last place; e^-87 is the smallest one."""
    scores = -np.linspace(0, 90, 64, dtype=np.float32)
    weights = _Row().update(scores)
    expected = np.where(scores < -87, 0, np.exp(scores.astype(np.float64))).astype(np.float32)
    distance = np.abs(expected.view(np.int32).astype(np.int64) - np.abs(weights).view(np.int32))
    assert distance.max() <= 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_makes_the_total_nan(bad):
    """Wherever it stands, now and ever after; where the row does not see it, it does nothing."""
    for slot in range(64):
        scores = np.zeros(64, np.float32)
        scores[slot] = bad
        row = _Row()
        row.update(scores)
        assert np.isnan(row.total)
        row.update(np.ones(64))
        assert np.isnan(row.total)
        if slot:
            row = _Row()
            row.update(scores, 0, slot)
            assert slot == row.total


def test_the_order_of_the_sum_is_fixed():
    """Sixteen lanes over four vectors, then halves: the same bits on every machine."""
    scores = np.random.default_rng(1).normal(0, 3, 64).astype(np.float32)
    row = _Row()
    weights = row.update(scores)
    lanes = weights[:16].copy()
    for vector in (1, 2, 3):
        lanes += weights[16 * vector : 16 * vector + 16]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    assert lanes[0] == row.total


def _part(largest, total, sums):
    row = _Row(16)
    row.state[:], row.sums[:] = (largest, total), sums
    return row


def test_parts_merge_to_what_the_whole_is():
    """Both relative to the larger one of their largest scores."""
    sums = np.random.default_rng(2).normal(0, 1, (2, 16)).astype(np.float32)
    for first, second in ((1.0, 3.0), (3.0, 1.0), (-2.0, -2.0), (0.0, 200.0)):
        row = _part(first, 2.0, sums[0])
        row.merge(_part(second, 5.0, sums[1]))
        a, b = np.exp(np.array([first, second]) - max(first, second))
        assert max(first, second) == row.state[0]
        np.testing.assert_allclose(2 * a + 5 * b, row.total, rtol=1e-6)
        np.testing.assert_allclose(sums[0] * a + sums[1] * b, row.sums, atol=1e-6)


def test_merging_into_or_from_nothing_changes_no_bit():
    """A row that has seen no score is not looked at; it becomes the other one."""
    sums = np.random.default_rng(3).normal(0, 1, 16).astype(np.float32)
    kept, taken = _part(0.5, 1.5, sums), _Row(16)
    kept.merge(_Row(16))
    taken.merge(_part(0.5, 1.5, sums))
    for row in (kept, taken):
        assert [0.5, 1.5] == row.state.tolist()
        assert np.array_equal(sums, row.sums)


def test_a_part_of_nan_is_not_nothing():
    """All scores minus infinity: the largest score says nothing, but the total is NaN."""
    bad, row = _Row(16), _part(0.5, 1.5, 0.0)
    bad.update(np.full(64, -np.inf))
    row.merge(bad)
    assert np.isnan(row.total)
    row = _Row(16)
    row.merge(bad)
    assert np.isnan(row.total)


@pytest.mark.parametrize("count", [1, 7, 8, 16, 21])
def test_sums_are_divided_by_the_total(count):
    """Only as many as asked for are written."""
    sums = np.random.default_rng(4).normal(0, 1, 24).astype(np.float32)
    row = _part(0.0, 3.0, 0.0)
    out = np.full(count + 1, 7, np.float32)
    _finish(address_of(row.state), address_of(sums), address_of(out), count)
    assert np.array_equal(sums[:count] * (np.float32(1) / np.float32(3)), out[:count])
    assert 7 == out[count]

"""Kernels of the sampler against plain sums and searches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.naive_sampler import drawn, in_order, picked, total_of, weights_of
from worker.kernels.sampling import NO_TOKEN, choose, likeliest, locate, pick
from worker.kernels.scratch import GROUP, make_scratch
from worker.kernels.selection import find_maxima
from worker.kernels.weights import Weighing, sum_weights


def chosen(row, temperature, min_p, top_k, top_p, draw):
    """The token that the kernel chooses."""
    return choose(row, temperature, min_p, top_k, top_p, draw, make_scratch(row.size))


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=30), st.floats(0, 1))
def test_pick_equals_searching_the_running_sum(weights, share):
    """The first index whose running sum exceeds the target; never one of weight 0."""
    weights = np.array(weights)
    if not weights.any():
        return
    target = share * weights.sum()
    assert picked(weights, target) == pick(weights, target)
    assert weights[pick(weights, target)] > 0


@pytest.mark.parametrize("size", [5, 512, 1500])
def test_draws_that_fall_between_two_tokens(size):
    """With equal weights every running sum is exact, and a target equal to it goes on to the next.

    These are the draws for which sums of blocks are not good enough.
    """
    row = np.zeros(size, np.float32)
    for token in {0, 1, size // 2, size - 1}:
        draw = token / size
        if draw * size == token:
            assert token == chosen(row, 1.0, 0.0, 0, 1.0, draw)
            assert max(0, token - 1) == chosen(row, 1.0, 0.0, 0, 1.0, np.nextafter(draw, 0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [513, 3000])
def test_draws_near_a_running_sum_equal_the_naive_ones(size, seed):
    """Before and behind a token's border, by a few roundings or by what an estimate doubts."""
    row = np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)
    weights = weights_of(row, 1.0, 0.0)
    total, running = total_of(weights), np.cumsum(weights)
    for token in range(size // 2, size, 7):
        for ulps in (-1e11, -1e9, -3, -2, -1, 0, 1, 2, 3, 1e9, 1e11):
            draw = min(float(running[token]) / total * (1 + ulps * 2.0**-52), 1 - 2.0**-53)
            assert picked(weights, draw * total) == chosen(row, 1.0, 0.0, 0, 1.0, draw)


@pytest.mark.parametrize("doubt", [0.0, 1e-5])
def test_prefix_sums_locate_the_token_where_they_tell(doubt):
    """The right token, or none close to a border; away from borders they always tell."""
    row = np.random.default_rng(0).normal(0, 1, 2000).astype(np.float32)
    scratch, how = make_scratch(2000), Weighing(float(row.max()), 1.0, 0.0)
    find_maxima(row, scratch.maxima)
    total = sum_weights(row, how, scratch)
    borders = np.cumsum(weights_of(row, 1.0, 0.0)) / total
    for draw in np.random.default_rng(1).random(500).tolist():
        token = locate(row, how, total, doubt * total, draw, scratch)
        assert token in (NO_TOKEN, int(np.searchsorted(borders, draw, side="right")))
        assert (token == NO_TOKEN) <= (np.abs(borders - draw).min() < 2 * doubt + 1e-12)
    border = float(borders[1500])
    assert NO_TOKEN == locate(row, how, total, doubt * total, border, scratch)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_shares_near_a_running_sum_equal_the_naive_ones(temperature):
    """The last token of the nucleus, for shares around the border of many tokens."""
    row = np.random.default_rng(3).normal(0, 2, 3000).astype(np.float32)
    weights = weights_of(row, temperature, 0.0)
    running = np.cumsum(weights[in_order(row)])
    for token in [*range(10), *range(10, 2000, 97)]:
        for ulps in (-1e11, -1e9, -3, -2, -1, 0, 1, 2, 3, 1e9, 1e11):
            top_p = min(float(running[token]) / total_of(weights) * (1 + ulps * 2.0**-52), 0.999)
            arguments = (row, temperature, 0.0, 0, top_p, 1 - 2.0**-53)
            assert drawn(*arguments) == chosen(*arguments)


def test_the_token_that_reaches_top_p_is_the_last():
    """Also when the running sum is the share exactly."""
    row = np.zeros(8, np.float32)
    last = 1 - 2.0**-53
    assert [3, 4] == [chosen(row, 1.0, 0.0, 0, top_p, last) for top_p in (0.5, 0.51)]
    assert [1, 2] == [chosen(row, 1.0, 0.0, 4, top_p, last) for top_p in (0.5, 0.51)]


@settings(deadline=None)
@given(
    st.sampled_from([1, 64, 300, 20_000]),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.sampled_from([0.0, 1e-3, 1.0]),
    st.sampled_from([0, 1, 2, 299, 10_000]),
    st.sampled_from([0.0, 0.1, 0.99, 1 - 2.0**-53, 1.0]),
    st.sampled_from([0.0, 2.0**-53, 0.3, 1 - 2.0**-53]),
    st.integers(0, 2**32),
)
def test_extreme_draws_and_filters_equal_the_naive_ones(
    size, temperature, min_p, top_k, top_p, draw, seed
):
    """The ends of every range, together."""
    row = np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)
    expected = drawn(row, temperature, min_p, top_k, top_p, draw)
    assert expected == chosen(row, temperature, min_p, top_k, top_p, draw)


@pytest.mark.parametrize("period", [2, 3, 5, 64])
@pytest.mark.parametrize("top_p", [0.5, 0.95, 0.999999])
def test_a_tail_that_its_sample_misleads_about_equals_the_naive_one(period, top_p):
    """The tail is estimated from some groups; here they hold nothing, or nothing but the top."""
    group = np.arange(60_000) // GROUP
    for sampled in (group % period == 0, group % period == 1):
        row = np.where(sampled, -9.0, 4.0).astype(np.float32)
        row[~sampled] += np.arange((~sampled).sum(), dtype=np.float32) / 60_000
        row[np.flatnonzero(sampled)[:100]] = 6.0
        for draw in (0.0, 0.5, 1 - 2.0**-53):
            expected = drawn(row, 1.0, 0.0, 0, top_p, draw)
            assert expected == chosen(row, 1.0, 0.0, 0, top_p, draw)


@pytest.mark.parametrize("filters", [(0, 1.0), (0, 0.9), (40, 1.0), (40, 0.9)])
def test_tokens_that_are_ruled_out_are_never_chosen(filters):
    """Minus infinity, anywhere; plus infinity leaves no token."""
    row = np.full(200, -np.inf, np.float32)
    row[[70, 199]] = 5.0
    assert {70, 199} == {chosen(row, 1.0, 0.0, *filters, draw) for draw in (0.0, 0.4, 0.6, 0.99)}
    assert 70 == chosen(row, 0.0, 0.0, *filters, 0.0)
    row[0] = np.inf
    assert NO_TOKEN == chosen(row, 1.0, 0.0, *filters, 0.5)
    assert NO_TOKEN == chosen(np.full(3, -np.inf, np.float32), 0.0, 0.0, *filters, 0.0)


@pytest.mark.parametrize("k", [0, 1, 20, 300, 1000])
def test_the_likeliest_equal_a_full_sort(k):
    """Their tokens in order, and the sums that their log-probabilities are made of."""
    row = np.random.default_rng(k).normal(0, 3, 300).astype(np.float32)
    scratch = make_scratch(300)
    expected = (float(row.max()), total_of(weights_of(row, 1.0, 0.0)))
    assert expected == likeliest(row, k, scratch)
    assert in_order(row)[:k].tolist() == scratch.candidates[: min(k, 300)].tolist()

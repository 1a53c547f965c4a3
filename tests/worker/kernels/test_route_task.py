"""Routing of tokens to experts, against NumPy."""

import numpy as np
import pytest

from worker.kernels.route_task import choose, group, weigh


def chosen_of(logits, used):
    """The experts of a token."""
    chosen = np.empty(used, np.int32)
    choose(np.array(logits, np.float32), chosen)
    return chosen


def weights_of(logits, used, is_share_of_all=0, scale=1.0):
    """Their weights."""
    logits = np.array(logits, np.float32)
    chosen, weights = chosen_of(logits, used), np.empty(used, np.float32)
    weigh(logits, chosen, weights, is_share_of_all, np.float32(scale))
    return weights


@pytest.mark.parametrize("used", [1, 2, 5, 8])
@pytest.mark.parametrize("levels", [3, 1000])
def test_the_largest_logits_are_chosen_in_order(used, levels):
    """As by a stable sort: of equal logits, the lower index goes first."""
    random = np.random.default_rng(0)
    for experts in (8, 12, 128):
        for _ in range(20):
            logits = random.integers(0, levels, experts).astype(np.float32)
            expected = np.argsort(-logits, kind="stable")[:used]
            assert expected.tolist() == chosen_of(logits, used).tolist()


@pytest.mark.parametrize("is_share_of_all", [0, 1])
def test_weights_are_a_softmax(is_share_of_all):
    """Over the chosen experts, or over all; times a factor."""
    logits = np.random.default_rng(1).standard_normal(13).astype(np.float32)
    chosen = chosen_of(logits, 4)
    powers = np.exp(logits.astype(np.float64))
    total = powers.sum() if is_share_of_all else powers[chosen].sum()
    found = weights_of(logits, 4, is_share_of_all, scale=2.5)
    np.testing.assert_allclose(2.5 * powers[chosen] / total, found, rtol=1e-6)


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_no_number_is_not_hidden(place, value):
    """Whether its expert is chosen or not, all weights are NaN and all experts exist."""
    logits = np.arange(7, dtype=np.float32)
    logits[place] = value
    assert np.isnan(weights_of(logits, 2)).all()
    assert set(chosen_of(logits, 2)) <= set(range(7))


def test_pairs_stand_in_the_order_of_their_experts():
    """Within an expert, in the order of the tokens; places and tokens lead back."""
    random = np.random.default_rng(2)
    tokens, used, experts = 37, 3, 9
    chosen = np.array([random.permutation(experts - 2)[:used] for _ in range(tokens)], np.int32)
    chosen = chosen.reshape(-1)
    starts, active = np.empty(experts + 1, np.int32), np.empty(experts, np.int32)
    places, sources = np.empty(tokens * used, np.int32), np.empty(tokens * used, np.int32)
    count = group(chosen, used, starts, active, places, sources)
    order = np.argsort(chosen, kind="stable")
    assert (order // used).tolist() == sources.tolist()
    assert np.argsort(order).tolist() == places.tolist()
    assert np.searchsorted(chosen[order], range(experts + 1)).tolist() == starts.tolist()
    assert np.unique(chosen).tolist() == active[:count].tolist()

"""The nucleus against plain sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.engine.naive_sampler import in_order, weights_of
from worker.kernels.nucleus import likeliest_until, nucleus_size
from worker.kernels.scratch import GROUP, make_scratch
from worker.kernels.selection import find_maxima, token_of
from worker.kernels.weights import Weighing

from .test_selection import row_of


def until(row, share, *, total=None):
    """Tokens and weights of the candidates that reach a share of the total, by default the real."""
    scratch, how = make_scratch(row.size), Weighing(float(row.max()), 1.0, 0.0)
    find_maxima(row, scratch.maxima)
    total = total or float(weights_of(row, 1.0, 0.0).sum())
    count = likeliest_until(row, share * total, total, how, scratch)
    tokens = [token_of(chosen) for chosen in scratch.candidates[:count].tolist()]
    return tokens, scratch.weights[:count]


def check(row, share):
    """The head of all tokens in order, no shorter than what reaches the share."""
    tokens, weights = until(row, share)
    assert in_order(row)[: len(tokens)].tolist() == tokens
    assert weights_of(row, 1.0, 0.0)[tokens].tolist() == weights.tolist()
    assert weights.sum() >= share * weights_of(row, 1.0, 0.0).sum() * (1 - 1e-12)


@settings(deadline=None)
@given(
    st.sampled_from(["normal", "integers", "ties", "ascending", "one group"]),
    st.sampled_from([1, 64, 3000, 40_000]),
    st.sampled_from([0.0, 0.5, 0.95, 0.9999]),
    st.integers(0, 2**32),
)
def test_candidates_are_the_head_of_a_full_sort(kind, size, share, seed):
    """In order, with their weights, and enough of them."""
    check(row_of(kind, size, seed), share)


@pytest.mark.parametrize("period", [2, 3, 5, 64])
@pytest.mark.parametrize("share", [0.5, 0.95, 0.999999])
def test_a_tail_that_its_sample_misleads_about(period, share):
    """The tail is estimated from some groups; here they hold nothing, or nothing but the top."""
    group = np.arange(60_000) // GROUP
    for sampled in (group % period == 0, group % period == 1):
        row = np.where(sampled, -9.0, 4.0).astype(np.float32)
        row[~sampled] += np.arange((~sampled).sum(), dtype=np.float32) / 60_000
        row[np.flatnonzero(sampled)[:100]] = 6.0
        check(row, share)


def test_few_tokens_are_looked_at():
    """Of a row with a long tail, not many more than the nucleus has."""
    row = row_of("normal", 200_000, 0)
    tokens, weights = until(row, 0.9)
    enough = int(np.searchsorted(np.cumsum(weights), 0.9 * weights_of(row, 1.0, 0.0).sum())) + 1
    assert enough <= len(tokens) <= 2 * enough


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_mass_that_is_not_reached_takes_all_tokens(size):
    """As rounding may have it when the share is next to 1; here the total is taken too large."""
    row = row_of("normal", size, 0)
    total = 2.0 * float(weights_of(row, 1.0, 0.0).sum())
    assert in_order(row).tolist() == until(row, 0.75, total=total)[0]


@pytest.mark.parametrize(
    ("low", "high", "size"),
    [
        (0.0, 0.0, 1),
        (3.0, 3.0, 1),
        (3.1, 3.1, 2),
        (2.9, 3.0, 1),
        (2.9, 3.1, 0),
        (3.1, 5.0, 2),
        (6.0, 6.0, 3),
        (7.0, 7.0, 0),
    ],
)
def test_the_size_of_a_nucleus(low, high, size):
    """Up to and with the weight that reaches the mass; none where its bounds do not tell."""
    scratch = make_scratch(3)
    scratch.weights[:] = [3.0, 2.0, 1.0]
    assert size == nucleus_size(3, low, high, scratch)

"""The largest logits of a row against a full sort."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.worker.engine.naive_sampler import in_order
from worker.kernels.scratch import make_scratch
from worker.kernels.selection import (
    candidate,
    find_maxima,
    first_equal,
    gather,
    keep_first,
    largest,
    logit_of,
    sort,
    token_of,
)

SPECIAL = [-np.inf, np.finfo(np.float32).min, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3e38]
KINDS = ["normal", "integers", "ties", "wide", "ascending", "descending", "one group", "special"]


def row_of(kind, size, seed):
    """float32 [size]."""
    random = np.random.default_rng(seed)
    normal = random.normal(0, 3, size)
    values = {
        "normal": lambda: normal,
        "integers": lambda: random.integers(-50, 50, size),
        "ties": lambda: random.integers(0, 2, size),
        "wide": lambda: normal * 10.0 ** random.integers(-44, 38, size),
        "ascending": lambda: np.sort(normal),
        "descending": lambda: -np.sort(normal),
        "one group": lambda: normal + 100 * (np.arange(size) // 64 == size // 128),
        "special": lambda: random.choice(SPECIAL, size),
    }[kind]()
    return values.astype(np.float32)


def found(row, k):
    """The tokens that `largest` gives."""
    scratch = make_scratch(row.size)
    find_maxima(row, scratch.maxima)
    count = largest(row, k, scratch)
    return [token_of(chosen) for chosen in scratch.candidates[:count].tolist()]


@pytest.mark.parametrize("logit", SPECIAL)
@pytest.mark.parametrize("token", [0, 1, 262_143, 2**31 - 1])
def test_a_candidate_holds_logit_and_token(logit, token):
    """Unpacked as it was packed, but for the sign of zero."""
    chosen = candidate(np.float32(logit), token)
    assert (np.float32(logit), token) == (np.float32(logit_of(chosen)), token_of(chosen))
    assert chosen >= 0


def test_candidates_are_ordered_as_tokens():
    """Largest logit first, lowest token first among equals, the two zeros being equal."""
    values = np.repeat(np.array(SPECIAL, np.float32), 2)
    candidates = [candidate(value, token) for token, value in enumerate(values)]
    assert in_order(values).tolist() == [token_of(chosen) for chosen in sorted(candidates)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 200, 3001])
def test_maxima_are_those_of_the_groups(kind, size):
    """Also where the last group is not full; the first token of the largest logit is found."""
    row = row_of(kind, size, size)
    maxima = np.zeros(-(-size // 64), np.float32)
    greatest = find_maxima(row, maxima)
    assert row.max() == greatest
    assert [row[i : i + 64].max() for i in range(0, size, 64)] == maxima.tolist()
    assert row.argmax() == first_equal(row, maxima, greatest)


@settings(deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 60, 64, 129, 3001, 20_000]),
    st.integers(1, 500) | st.integers(1, 25_000),
    st.integers(0, 2**32),
)
@example("one group", 20_000, 100, 0)
@example("special", 20_000, 20_000, 0)
def test_largest_equals_a_full_sort(kind, size, k, seed):
    """Any number of the largest, whatever the logits are."""
    row = row_of(kind, size, seed)
    assert in_order(row)[:k].tolist() == found(row, k)


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from([1, 64, 71, 3001]), st.integers(0, 2**32))
def test_gather_finds_all_from_the_threshold_up(kind, size, seed):
    """By token; the threshold may be any logit or lie between two."""
    row = row_of(kind, size, seed)
    scratch = make_scratch(size)
    find_maxima(row, scratch.maxima)
    for threshold in (row[seed % size], np.float32(0.25), np.float32(-np.inf)):
        count = gather(row, threshold, scratch)
        tokens = [token_of(chosen) for chosen in scratch.candidates[:count].tolist()]
        assert np.flatnonzero(row >= threshold).tolist() == tokens


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 3000), st.integers(0, 2**32), st.data())
def test_keep_first_and_sort_equal_sorting(kind, count, seed, data):
    """The first k stay, whatever k is; sorted, they are the head of all sorted."""
    row = row_of(kind, count, seed)
    candidates = [candidate(logit, token) for token, logit in enumerate(row)]
    scratch = make_scratch(count)
    scratch.candidates[:] = candidates
    k = data.draw(st.integers(1, count))
    keep_first(count, k, scratch)
    assert sorted(candidates)[:k] == sorted(scratch.candidates[:k].tolist())
    sort(k, scratch)
    assert sorted(candidates)[:k] == scratch.candidates[:k].tolist()

"""The most likely token against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.kernels.argmax import best_token

SIZES = [1, 7, 8, 63, 64, 65, 200, 49152]


def naive(logits):
    """Token and value of the first largest logit; token -1 in a row that is not sound."""
    token = int(logits.argmax())
    return (token if np.isfinite(logits).all() else -1), float(logits[token])


@settings(deadline=None)
@given(st.sampled_from(SIZES), st.sampled_from([1, 3, 10**6]), st.integers(0, 2**32))
def test_best_token_equals_the_naive_one(size, different, seed):
    """Of any length, with ties and without: the lowest id among equals."""
    logits = np.random.default_rng(seed).integers(-different, different, size).astype(np.float32)
    assert naive(logits) == best_token(logits)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_a_logit_that_is_not_finite_leaves_no_token(size, bad):
    """Wherever it stands."""
    for place in {0, size // 2, size - 1}:
        logits = np.zeros(size, np.float32)
        logits[place] = bad
        assert best_token(logits)[0] == -1


def test_the_ends_of_float32_are_sound():
    """Values whose sum overflows, subnormal ones, and two zeros that are equal."""
    largest = np.finfo(np.float32).max
    assert (1, float(largest)) == best_token(np.array([-largest, largest, largest], np.float32))
    assert (0, -0.0) == best_token(np.array([-0.0, 0.0, -1e-45], np.float32))
    assert (2, float(np.float32(1e-45))) == best_token(np.array([-0.0, 0.0, 1e-45], np.float32))

"""Largest: the top k in a fixed order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.largest import largest


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.integers(0, 70))
def test_equals_a_full_sort(values, k):
    """As sorting everything by value, then index; many ties."""
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    assert largest(np.array(values, np.float32), k).tolist() == expected


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([2, 50, 10**6]))
def test_equals_a_full_sort_of_many_values(seed, k, different):
    """The shortcut for few of many values changes nothing, with ties and without."""
    values = np.random.default_rng(seed).integers(0, different, 3001).astype(np.float32)
    expected = sorted(range(3001), key=lambda i: (-values[i], i))[:k]
    assert largest(values, k).tolist() == expected


@pytest.mark.parametrize("k", [1, 5, 4000, 50_000])
def test_sorts_the_chosen_values_alone(monkeypatch, k):
    """The vocabulary is never sorted as a whole unless all of it is asked for."""
    sizes = []
    argsort = np.argsort

    def counting(values, **options):
        sizes.append(len(values))
        return argsort(values, **options)

    monkeypatch.setattr(np, "argsort", counting)
    largest(np.random.default_rng(0).normal(size=49152).astype(np.float32), k)
    assert sizes == [min(k, 49152)]

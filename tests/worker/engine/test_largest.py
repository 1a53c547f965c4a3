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


@pytest.mark.parametrize("k", [1, 5, 4000, 50_000])
def test_does_not_sort_everything(monkeypatch, k):
    """Only the k chosen values are sorted."""
    sorted_sizes = []
    lexsort = np.lexsort

    def counting(keys):
        sorted_sizes.append(len(keys[0]))
        return lexsort(keys)

    monkeypatch.setattr(np, "lexsort", counting)
    largest(np.random.default_rng(0).normal(size=49152).astype(np.float32), k)
    assert sorted_sizes == [min(k, 49152)]

"""Philox against NumPy's."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.kernels.philox import philox, uniform

words = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(words, words, st.integers(0, 2**64 - 2))
def test_philox_equals_numpys(key0, key1, counter):
    """NumPy counts up before it draws; apart from that the words are the same."""
    generator = np.random.Philox(
        key=np.array([key0, key1], np.uint64), counter=np.array([counter, 0, 0, 0], np.uint64)
    )
    expected = [int(word) for word in generator.random_raw(4)]
    arguments = (np.uint64(counter + 1), np.uint64(key0), np.uint64(key1))
    assert expected == [int(word) for word in philox(*arguments)]
    assert (expected[0] >> 11) * 2.0**-53 == uniform(*arguments)

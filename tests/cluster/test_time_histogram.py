import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.time_histogram import TimeHistogram


@given(
    times=st.lists(st.floats(1e-5, 1e5), min_size=1, max_size=200),
    share=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_percentiles_are_within_two_percent_of_the_sorted_list(times, share):
    """The bin's middle stands for the exact value."""
    histogram = TimeHistogram()
    for seconds in times:
        histogram.add(seconds)
    exact = sorted(times)[math.ceil(share * len(times)) - 1]
    assert histogram.percentile(share) == pytest.approx(exact, rel=0.02)


def test_nothing_counted_has_no_percentile():
    """No token at all: no time to the first one."""
    assert TimeHistogram().percentile(0.5) is None

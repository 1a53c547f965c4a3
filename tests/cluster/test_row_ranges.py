"""Sets of row ids as ranges, beside Python's own sets."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster.row_ranges import consecutive, holds, without

IDS = st.sets(st.integers(0, 40))


def ranges_of(ids):
    """The ranges that a set of ids forms."""
    return consecutive(np.array(sorted(ids), np.int64))


@given(IDS)
def test_ranges_have_each_id_once_and_do_not_touch(ids):
    """As few ranges as there can be, ascending."""
    ranges = ranges_of(ids)
    assert sorted(ids) == [row_id for rows in ranges for row_id in rows]
    assert all(one.stop < two.start for one, two in pairwise(ranges))


@given(IDS, st.integers(0, 40), st.integers(0, 40))
def test_what_is_left_of_a_range(taken, start, stop):
    """All of its ids that are not taken, ascending, in ranges that are not empty."""
    left = list(without(range(start, stop), ranges_of(taken)))
    assert sorted(set(range(start, stop)) - taken) == [row_id for rows in left for row_id in rows]
    assert all(left)


@given(IDS, st.integers(0, 40), st.integers(1, 5))
def test_a_range_is_held_if_all_of_its_ids_are(ids, start, length):
    """By one range, since ranges that touch are one."""
    rows = range(start, start + length)
    assert (set(rows) <= ids) == holds(ranges_of(ids), rows)

"""Sets of row ids as ascending ranges that do not overlap."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def consecutive(row_ids: NDArray[np.int64]) -> tuple[range, ...]:
    """Return the ranges that ascending row ids [N] form."""
    if not len(row_ids):
        return ()
    breaks = np.flatnonzero(np.diff(row_ids) != 1)
    starts = row_ids[np.concatenate([[0], breaks + 1])].tolist()
    lasts = row_ids[np.concatenate([breaks, [len(row_ids) - 1]])].tolist()
    return tuple(range(start, last + 1) for start, last in zip(starts, lasts, strict=True))


def without(rows: range, taken: Iterable[range]) -> Iterator[range]:
    """Yield what is left of a range, ascending.

    Args:
        rows: the range.
        taken: what is taken from it, in the order of their starts; may overlap.
    """
    start = rows.start
    for other in taken:
        if (stop := min(other.start, rows.stop)) > start:
            yield range(start, stop)
        start = max(start, other.stop)
    if start < rows.stop:
        yield range(start, rows.stop)


def holds(ranges: Sequence[range], rows: range) -> bool:
    """Tell whether one of the ranges has all of ``rows``."""
    index = bisect_right(ranges, rows.start, key=lambda each: each.start) - 1
    return index >= 0 and rows.stop <= ranges[index].stop

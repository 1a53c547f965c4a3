"""The k largest values, with one rule for ties and without sorting the vocabulary."""

import numpy as np
from numpy.typing import NDArray


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Indices of the k largest values, largest first; of equal values the lowest index first.

    Args:
        values: float32 ``[n]``, finite.
        k: how many; all of them when k is n or more.

    Returns:
        int64 ``[min(k, n)]``.
    """
    k = min(k, values.size)
    if k == 0:
        return np.empty(0, np.int64)
    # The k-th value is the same whatever algorithm partitions; the indices would not be.
    border = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > border)
    ties = np.flatnonzero(values == border)[: k - above.size]
    indices = np.concatenate((above, ties))
    return indices[np.lexsort((indices, -values[indices]))]

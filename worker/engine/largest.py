"""The k largest values, with one rule for ties and without sorting the vocabulary."""

import numpy as np
from numpy.typing import NDArray

_SET = 32  # values whose maximum is taken


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Indices of the k largest values, largest first; of equal values the lowest index first.

    Args:
        values: float32 ``[n]``, finite.
        k: how many; all of them when k is n or more.

    Returns:
        integers ``[min(k, n)]``.
    """
    k = min(k, values.size)
    if k == 0:
        return np.empty(0, np.int64)
    ids = _not_below_the_kth(values, k)
    chosen = values[ids]
    # The k-th value is the same whatever algorithm partitions; the indices would not be.
    kth = np.partition(chosen, chosen.size - k)[chosen.size - k]
    above = ids[chosen > kth]
    ids = np.concatenate((above, ids[chosen == kth][: k - above.size]))
    return ids[np.argsort(-values[ids], kind="stable")]


def _not_below_the_kth(values: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Indices, ascending, of at least all values that are not below the k-th largest.

    The k-th largest of the maxima of disjoint sets is a value that k values reach. Comparing
    with it leaves few, at a fraction of the cost of partitioning all.
    """
    sets = values.size // _SET
    if sets < 2 * k:
        return np.arange(values.size)
    maxima = values[: sets * _SET].reshape(_SET, sets).max(axis=0)
    return np.flatnonzero(values >= np.partition(maxima, sets - k)[sets - k])

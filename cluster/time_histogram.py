"""Percentiles of durations in bounded memory."""

import math
from collections import Counter
from typing import Final

_GROWTH: Final = 1.02  # neighbouring bins differ by 2 %: so does a percentile from the exact one
_SMALLEST_S: Final = 1e-6


class TimeHistogram:
    """Counts durations in bins that grow by 2 %; a day of them takes some 1,300 bins."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self.count = 0

    def add(self, seconds: float) -> None:
        """Count a duration in."""
        ratio = max(seconds, _SMALLEST_S) / _SMALLEST_S
        self._bins[round(math.log(ratio, _GROWTH))] += 1
        self.count += 1

    def percentile(self, share: float) -> float | None:
        """Return the duration, in seconds, that ``share`` (0 to 1) of all do not exceed.

        None when nothing was counted.
        """
        wanted = share * self.count
        seen = 0
        for index in sorted(self._bins):
            seen += self._bins[index]
            if seen >= wanted:
                return _SMALLEST_S * _GROWTH**index
        return None

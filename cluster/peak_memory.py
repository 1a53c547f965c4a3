"""The most memory that this process has held."""

import resource
import sys

_UNIT = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB


def peak_rss_bytes() -> int:
    """Return the peak resident set size of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT

"""Random draws that depend on a row alone: counter-based, without state.

A draw is a function of (key, position). Nothing is consumed, so batches, chunks, preemption and
retries cannot shift the draws of a row.
"""

from hashlib import blake2b
from typing import NewType

from .request import RowId

DrawKey = NewType("DrawKey", tuple[int, int])
"""The 128-bit key of one completion's draws, as two 64-bit words."""

_MASK = (1 << 64) - 1


def draw_key(seed: int | None, job_seed: int, row_id: RowId, completion_index: int = 0) -> DrawKey:
    """Key of a completion: from the row's own seed if there is one, else from job and row."""
    if seed is not None:
        return DrawKey((seed, completion_index))
    digest = blake2b(f"tokenmill row {job_seed} {row_id}".encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    return DrawKey((first, (second + completion_index) & _MASK))

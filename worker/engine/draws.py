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
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10


def draw_key(seed: int | None, job_seed: int, row_id: RowId, completion_index: int = 0) -> DrawKey:
    """Key of a completion: from the row's own seed if there is one, else from job and row."""
    if seed is not None:
        return DrawKey((seed, completion_index))
    digest = blake2b(f"tokenmill row {job_seed} {row_id}".encode(), digest_size=16).digest()
    first, second = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    return DrawKey((first, (second + completion_index) & _MASK))


def uniform(key: DrawKey, position: int) -> float:
    """The draw for the generated token at ``position`` (from 0): uniform in [0, 1), 53 bits."""
    return float((philox((position, 0, 0, 0), key)[0] >> 11) * 2.0**-53)


def philox(counter: tuple[int, int, int, int], key: DrawKey) -> tuple[int, int, int, int]:
    """Philox4x64-10 (Salmon et al. 2011): four 64-bit words from a counter and a key."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p, q = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
        a, b, c, d = (q >> 64) ^ b ^ k0, q & _MASK, (p >> 64) ^ d ^ k1, p & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return a, b, c, d

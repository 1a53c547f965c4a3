"""A hash table from texts to tokens, for substrings of a text whose prefixes are hashed.

A text is code points, uint32 [n]. Its prefix hashes give the hash of any substring at once; what
is found is compared character by character, so hashes decide nothing.
"""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel

ABSENT = -1
"""No token has that text, and none begins with it."""
PREFIX = -2
"""No token has that text, but some token begins with it (where prefixes are in the table)."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_ONE = np.uint64(1)
_SHIFT = np.uint64(32)


@kernel
def hash_prefixes(text: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Hash every prefix of a text: hashes uint64 [n + 1]."""
    hashes[0] = np.uint64(0)
    for i in range(text.size):
        hashes[i + 1] = hashes[i] * _MULTIPLIER + np.uint64(text[i]) + _ONE


@kernel
def find(
    text: NDArray[np.uint32],
    hashes: NDArray[np.uint64],
    start: int,
    end: int,
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    powers: NDArray[np.uint64],
) -> int:
    """Look a substring up.

    Args:
        text: uint32 [n].
        hashes: uint64 [n + 1] of its prefixes.
        start: where the substring begins.
        end: where it ends; no longer than the longest token.
        slots: int32 [2 ** k, 3]: token or PREFIX; where its text is in ``texts``; its length, 0 for
            an empty slot.
        texts: uint32 [m]: the tokens' texts.
        powers: uint64 [longest + 1]: of the multiplier.

    Returns:
        The token, ABSENT or PREFIX.
    """
    length = end - start
    place = _place(hashes[end] - hashes[start] * powers[length], slots)
    while slots[place, 2] > 0:
        if slots[place, 2] == length:
            first = int(slots[place, 1])
            same = 0
            while same < length and texts[first + same] == text[start + same]:
                same += 1
            if same == length:
                return int(slots[place, 0])
        place = (place + 1) & (slots.shape[0] - 1)
    return ABSENT


@kernel
def fill(
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    ends: NDArray[np.int64],
    tokens: NDArray[np.int64],
    powers: NDArray[np.uint64],
    with_prefixes: bool,
) -> None:
    """Fill an empty table.

    Args:
        slots: int32 [2 ** k, 3], zeros, more than twice as many as there are texts or prefixes.
        texts: uint32 [m]: all texts, none empty, none twice.
        ends: int64 [count]: where each ends.
        tokens: int64 [count]: what each is.
        powers: uint64 [longest + 1]: receives the powers of the multiplier.
        with_prefixes: whether to put prefixes in as well.
    """
    powers[0] = _ONE
    for i in range(1, powers.size):
        powers[i] = powers[i - 1] * _MULTIPLIER
    hashes = np.empty(texts.size + 1, np.uint64)
    hash_prefixes(texts, hashes)
    start = 0
    for i in range(ends.size):
        for end in range(start + 1 if with_prefixes else ends[i], ends[i] + 1):
            is_token = end == ends[i]
            _put(slots, texts, hashes, start, end, tokens[i] if is_token else PREFIX, powers)
        start = ends[i]


@kernel
def _put(
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    hashes: NDArray[np.uint64],
    start: int,
    end: int,
    token: int,
    powers: NDArray[np.uint64],
) -> None:
    """Put a text in; a token takes the place of a prefix, never the other way round."""
    length = end - start
    place = _place(hashes[end] - hashes[start] * powers[length], slots)
    while slots[place, 2] > 0:
        if slots[place, 2] == length:
            first = int(slots[place, 1])
            same = 0
            while same < length and texts[first + same] == texts[start + same]:
                same += 1
            if same == length:
                if token != PREFIX:
                    slots[place, 0] = token
                return
        place = (place + 1) & (slots.shape[0] - 1)
    slots[place, 0] = token
    slots[place, 1] = start
    slots[place, 2] = length


@kernel
def _place(hashed: np.uint64, slots: NDArray[np.int32]) -> int:
    """Where to begin to look."""
    mixed = (hashed ^ (hashed >> _SHIFT)) * _MIX
    return int(np.int64((mixed >> _SHIFT) & np.uint64(slots.shape[0] - 1)))

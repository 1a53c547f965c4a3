"""The normalisation that a unigram vocabulary brings: texts and what they are replaced by.

``tokenizer.ggml.precompiled_charsmap`` is SentencePiece's: the size of a table (uint32), a
double-array trie of that many bytes (Kanda 2018; the layout is that of the darts-clone library),
and replacements that end with a zero byte. A text is read from left to right, and the longest entry
that it begins with is replaced.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf.constants import Keys
from numpy.typing import NDArray

from worker.errors import GGUFError

from .token_matcher import TokenMatcher

_VALUE = 0x7FFFFFFF
_LABEL_BITS = 0x800000FF
_LABELS = np.arange(1, 256)
_MOST_NODES = 1 << 20  # SentencePiece's largest map has a quarter of that
_LONGEST = 64  # bytes of an entry; a dozen there
_AT_A_TIME = 1 << 11


class CharacterMap:
    """Replaces the texts of a map; without entries it changes nothing."""

    def __init__(self, entries: dict[str, str]) -> None:
        """Take texts, none empty, and their replacements."""
        self._entries = entries
        longer = {text: 0 for text in entries if len(text) > 1}
        self._single = str.maketrans({k: v for k, v in entries.items() if len(k) == 1})
        self._longer = TokenMatcher(longer)
        # Their second characters (combining marks) are much rarer than their first.
        seconds = "".join(map(re.escape, sorted({text[1] for text in longer})))
        self._second = re.compile(f"[{seconds}]") if longer else None

    @classmethod
    def from_blob(cls, path: Path, blob: NDArray[np.uint8]) -> "CharacterMap":
        """Read a map.

        Args:
            path: the model file, for messages.
            blob: uint8 [n]; empty for none.

        Raises:
            GGUFError: a number in it leads outside of it.
        """
        return cls(_entries(path, blob) if blob.size else {})

    def __call__(self, text: str) -> str:
        """Give the text with all entries replaced."""
        pieces = []
        done = 0
        for start in self._starts(text):
            entry = self._longer.match(text, start) if start >= done else None
            if entry is not None:
                pieces += [text[done:start].translate(self._single), self._entries[entry]]
                done = start + len(entry)
        return "".join([*pieces, text[done:].translate(self._single)])

    def _starts(self, text: str) -> Iterator[int]:
        """Give the places where an entry of several characters may begin."""
        if self._second is not None:
            for found in self._second.finditer(text, 1):
                yield found.start() - 1


def _entries(path: Path, blob: NDArray[np.uint8]) -> dict[str, str]:
    raw = blob.tobytes()
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 5 or size % 4 or size == 0 or 4 + size >= len(raw):
        raise _unsound(path, f"a table of {size} bytes in {len(raw)}")
    trie = np.frombuffer(raw, "<u4", size // 4, 4).astype(np.int64)
    replacements = raw[4 + size :]
    found = {}
    for key, place in _walk(path, trie).items():
        end = replacements.find(b"\0", place)
        if end < 0:
            raise _unsound(path, f"a replacement at {place} of {len(replacements)} bytes")
        try:
            found[key.decode()] = replacements[place:end].decode()
        except UnicodeDecodeError as error:
            raise _unsound(path, "bytes that are not UTF-8") from error
    return found


def _walk(path: Path, trie: NDArray[np.int64]) -> dict[bytes, int]:
    """Give every key of the trie and its value, one byte of all keys after the other.

    Keys may share the nodes of their ends, so a small trie could have endless many.
    """
    keys, states = [b""], _base(trie[:1])  # where a key's children lie, but for their labels
    values: dict[bytes, int] = {}
    visited = 0
    while keys:
        visited += len(keys)
        if visited > _MOST_NODES or len(keys[0]) > _LONGEST:
            raise _unsound(
                path, f"more than {_MOST_NODES} beginnings of entries, or longer than {_LONGEST}"
            )
        parents, labels, nodes = _children(trie, states)
        keys = [keys[i] + bytes([label]) for i, label in zip(parents, labels, strict=True)]
        states = nodes ^ _base(trie[nodes])
        for place in np.flatnonzero(trie[nodes] & 0x100).tolist():
            if states[place] >= trie.size:
                raise _unsound(path, f"an entry {states[place]} of {trie.size}")
            values[keys[place]] = int(trie[states[place]]) & _VALUE
    return values


def _children(
    trie: NDArray[np.int64], states: NDArray[np.int64]
) -> tuple[list[int], list[int], NDArray[np.int64]]:
    """Give the place of the state, the label and the node of every child of some states."""
    parents: list[NDArray[np.int64]] = []
    labels: list[NDArray[np.int64]] = []
    for first in range(0, len(states), _AT_A_TIME):
        children = states[first : first + _AT_A_TIME, None] ^ _LABELS  # [states, 255]
        inside = children < trie.size
        nodes = trie[np.where(inside, children, 0)]
        places, found = np.nonzero(inside & ((nodes & _LABEL_BITS) == _LABELS))
        parents.append(places + first)
        labels.append(_LABELS[found])
    places, found = np.concatenate(parents), np.concatenate(labels)
    return places.tolist(), found.tolist(), states[places] ^ found


def _base(nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    return (nodes >> 10) << ((nodes & 0x200) >> 6)


def _unsound(path: Path, found: str) -> GGUFError:
    return GGUFError(
        f"{path}: key {Keys.Tokenizer.PRECOMPILED_CHARSMAP} is no sound map of characters: it has "
        f"{found}; convert the model again"
    )

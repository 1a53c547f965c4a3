"""Finding tokens that are spelled out in text."""

import re
from collections.abc import Iterator, Mapping


class TokenMatcher:
    """Splits text at the tokens of a set: leftmost match first, the longest one at a place.

    A vocabulary may have thousands of such tokens (Gemma 3: 6,400, most of which start with
    ``<``), too many for one alternation: candidates are found by their first character, then
    looked up by length.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = dict(ids)
        self._lengths: dict[str, list[int]] = {}
        for text in self._ids:
            lengths = self._lengths.setdefault(text[0], [])
            if len(text) not in lengths:
                lengths.append(len(text))
        for lengths in self._lengths.values():
            lengths.sort(reverse=True)
        firsts = "".join(map(re.escape, self._lengths))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def match(self, text: str, position: int) -> str | None:
        """Give the longest token spelled at a position, or None."""
        for length in self._lengths.get(text[position], ()):
            candidate = text[position : position + length]
            if candidate in self._ids:
                return candidate
        return None

    def positions(self, text: str) -> Iterator[int]:
        """Give every position at which some token is spelled, overlapping ones included."""
        if self._first is not None:
            for found in self._first.finditer(text):
                if self.match(text, found.start()) is not None:
                    yield found.start()

    def split(self, text: str) -> Iterator[str | int]:
        """Cut text into pieces of text (never empty) and ids of tokens, in order."""
        done = 0
        for position in self.positions(text):
            if position < done:
                continue  # inside the token before
            token = self.match(text, position)
            assert token is not None
            if position > done:
                yield text[done:position]
            yield self._ids[token]
            done = position + len(token)
        if done < len(text):
            yield text[done:]

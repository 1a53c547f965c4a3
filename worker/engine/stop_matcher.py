"""Stop strings: where the text ends, and which part of it is certain already."""

from collections.abc import Sequence


class StopMatcher:
    """Looks for stop strings in text that arrives in pieces, across the pieces' borders.

    The text ends before the earliest match that is complete when the match is first known.
    Text that may turn out to be the beginning of a stop string is held back until that is clear::

        stop = "efg"      pushed:  "abcde"      text: "abcd"   held back: "e"
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._longest = max(map(len, stop), default=0)
        self._settled: list[str] = []
        self._held = ""
        self._taken = 0

    @property
    def text(self) -> str:
        """The text that is certain."""
        return "".join(self._settled)

    def push(self, piece: str) -> str | None:
        """Add text; the stop string that ends it, or None to go on.

        Where several strings match, the one that begins first counts, and of those the first
        in the list.
        """
        text = self._held + piece
        found = [(start, i) for i, stop in enumerate(self._stop) if (start := text.find(stop)) >= 0]
        if found:
            start, i = min(found)
            self._settle(text, start)
            self._held = ""
            return self._stop[i]
        self._settle(text, len(text) - self._begun(text))
        return None

    def finish(self) -> None:
        """No more text comes: what was held back is text."""
        self._settle(self._held, len(self._held))

    def take(self) -> str:
        """The text that became certain since the last call, for streaming."""
        fresh = "".join(self._settled[self._taken :])
        self._taken = len(self._settled)
        return fresh

    def _settle(self, text: str, end: int) -> None:
        if end:
            self._settled.append(text[:end])
        self._held = text[end:]

    def _begun(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        most = min(self._longest - 1, len(text))
        return next((n for n in range(most, 0, -1) if self._begins(text[-n:])), 0)

    def _begins(self, end: str) -> bool:
        return any(stop.startswith(end) for stop in self._stop)

"""Keeping control tokens that messages spell apart from those that a template writes.

A template pastes messages between its control tokens, and in the rendered text nobody can tell
whose ``<|im_end|>`` it is. So a guard character is put into each control token that a message
spells, before rendering; it is taken out again after the text has been cut at control tokens.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from worker.errors import RowError

from .token_matcher import TokenMatcher

# Printable characters that are rarely met (hieroglyphs, then rare ideographs): printing a
# message inside a list or dict escapes what is not printable, and the guard would stay.
_GUARD_CHARACTERS = tuple(map(chr, chain(range(0x13000, 0x13430), range(0x20000, 0x2A6D0))))


class ControlGuard:
    """Guards the control tokens spelled in messages.

    One whose text is a single character cannot be guarded.
    """

    def __init__(self, control_tokens: Iterable[str]) -> None:
        """Take the texts of the control tokens."""
        tokens = [token for token in control_tokens if len(token) > 1]
        self._matcher = TokenMatcher(dict.fromkeys(tokens, 0))
        self._beginnings = {token[:length] for token in tokens for length in range(1, len(token))}
        self._longest = max(map(len, self._beginnings), default=0)

    def guard(
        self, messages: list[dict[str, Any]], template: str
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Give the messages with guards, and the guard used; None when nothing was to be done.

        Args:
            messages: as ``normalise_messages`` gives them; not changed.
            template: source of the template, in which the guard must not occur either.

        Raises:
            RowError: the messages hold every character that could serve as a guard.
        """
        used = set(template).union(*_strings(messages))
        character = next((c for c in _GUARD_CHARACTERS if c not in used), None)
        if character is None:
            raise RowError("messages: no character is left to mark control tokens with")
        guarded = [self._guarded_message(message, character) for message in messages]
        return guarded, None if guarded == messages else character

    def _opens_token(self, text: str) -> bool:
        """Tell whether a text ends with the beginning of a control token.

        What the template writes after it, or the next message, could complete the token.
        """
        longest = min(self._longest, len(text))
        return any(text[-length:] in self._beginnings for length in range(1, longest + 1))

    def _guarded_message(self, message: dict[str, Any], character: str) -> dict[str, Any]:
        guarded = self._guarded(message, character)
        # Templates compare roles, so a role is guarded only where it spells a whole token.
        guarded["role"] = self._inside(message["role"], character)
        assert isinstance(guarded, dict)
        return guarded

    def _guarded(self, value: Any, character: str) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, str):
            text = self._inside(value, character)
            return text + character if self._opens_token(value) else text
        if isinstance(value, Mapping):
            return {
                self._inside(key, character): self._guarded(item, character)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._guarded(item, character) for item in value]
        return value

    def _inside(self, text: str, character: str) -> str:
        """Put a guard after the first character of every control token in a text.

        Tokens may overlap: each is broken, wherever another starts.
        """
        cuts = [position + 1 for position in self._matcher.positions(text)]
        starts = [0, *cuts]
        return character.join(
            text[start:end] for start, end in zip(starts, [*cuts, len(text)], strict=True)
        )


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)

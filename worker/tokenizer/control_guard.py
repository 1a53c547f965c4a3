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
    """Guards the control tokens spelled in messages, and parts of them at the edges of a text.

    What a template or the next message writes beside a text could complete such a part, also
    after the template has stripped the blanks between. Two things cannot be guarded: a token
    of a single character, and a word that a template makes a token of on both sides, as in
    ``<|{{ message.role }}|>``.
    """

    def __init__(self, control_tokens: Iterable[str]) -> None:
        """Take the texts of the control tokens."""
        tokens = [token for token in control_tokens if len(token) > 1]
        self._matcher = TokenMatcher(dict.fromkeys(tokens, 0))
        self._beginnings = {token[:length] for token in tokens for length in range(1, len(token))}
        self._endings = {token[length:] for token in tokens for length in range(1, len(token))}
        self._longest = max(map(len, self._beginnings), default=0)

    def guard(
        self, messages: list[dict[str, Any]], variables: dict[str, Any], surroundings: object
    ) -> tuple[list[dict[str, Any]], dict[str, Any], str | None]:
        """Give messages and variables with guards, and the guard; None when there was none to set.

        Args:
            messages: as ``normalise_messages`` gives them; not changed.
            variables: further variables that come from the row, tools perhaps; not changed.
            surroundings: source and other variables of the template, in which the guard must not
                occur either.

        Raises:
            RowError: the messages hold every character that could serve as a guard.
        """
        used = set().union(*_strings([messages, variables, surroundings]))
        character = next((c for c in _GUARD_CHARACTERS if c not in used), None)
        if character is None:
            raise RowError("messages: no character is left to mark control tokens with")
        guarded = [self._guarded_message(message, character) for message in messages]
        own = {name: self._guarded_names(value, character) for name, value in variables.items()}
        is_used = guarded != messages or own != variables
        return guarded, own, character if is_used else None

    def _guarded_message(self, message: dict[str, Any], character: str) -> dict[str, Any]:
        guarded = self._guarded(message, character)
        assert isinstance(guarded, dict)
        guarded["role"] = self._guarded_name(message["role"], character)
        return guarded

    def _guarded_name(self, name: Any, character: str) -> Any:  # noqa: ANN401 - any key
        """Guard a role or key. Templates ask for them: in a word only a whole token is guarded."""
        if isinstance(name, str) and name.isidentifier():
            return _cut(name, self._inside(name), character)
        return self._guarded(name, character)

    def _guarded_names(self, value: Any, character: str) -> Any:  # noqa: ANN401 - any JSON value
        """Guard tools, in which any word may be a name that the template asks for."""
        if isinstance(value, str):
            return self._guarded_name(value, character)
        if isinstance(value, Mapping):
            return {
                self._guarded_name(key, character): self._guarded_names(item, character)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._guarded_names(item, character) for item in value]
        return value

    def _guarded(self, value: Any, character: str) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, str):
            return _cut(value, {*self._inside(value), *self._edges(value)}, character)
        if isinstance(value, Mapping):
            return {
                self._guarded_name(key, character): self._guarded(item, character)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._guarded(item, character) for item in value]
        return value

    def _inside(self, text: str) -> Iterator[int]:
        """Give the place after the first character of every control token in a text.

        Tokens may overlap: each is broken, wherever another starts.
        """
        return (position + 1 for position in self._matcher.positions(text))

    def _edges(self, text: str) -> Iterator[int]:
        """Give the edges of a text, with and without blanks, that are part of a control token."""
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        lengths = range(1, self._longest + 1)
        for edge in {0, start}:
            if any(text[edge : edge + length] in self._endings for length in lengths):
                yield edge
        for edge in {end, len(text)}:
            if any(text[max(edge - length, 0) : edge] in self._beginnings for length in lengths):
                yield edge


def _cut(text: str, places: Iterable[int], character: str) -> str:
    """Put a character into a text at each of some places."""
    cuts = sorted(places)
    return character.join(
        text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
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

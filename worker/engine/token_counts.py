"""The tokens of a sequence, each once, as penalties look at them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_ROOM = 64  # tokens that room is made for at first


class TokenCounts:
    """Distinct tokens of prompt and completion, counted as the completion grows."""

    def __init__(self, prompt: Iterable[int]) -> None:
        """Start with the tokens of the prompt, none of them generated."""
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        self._tokens = np.array([*self._places, *[0] * _ROOM], np.int32)
        self._generated = np.zeros(len(self._tokens), np.int32)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """int32 [m]: tokens in the order in which they came first."""
        return self._tokens[: len(self._places)]

    @property
    def generated(self) -> NDArray[np.int32]:
        """int32 [m]: how often each was generated."""
        return self._generated[: len(self._places)]

    def add(self, token_id: int) -> None:
        """Count a generated token."""
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._generated = np.concatenate([self._generated, np.zeros_like(self._generated)])
        self._tokens[place] = token_id
        self._generated[place] += 1

"""The tokens of a sequence, each once, as penalties look at them."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from worker.kernels.native import address_of

_ROOM = 64  # tokens that room is made for at first


class TokenCounts:
    """Distinct tokens of prompt and completion, counted as the completion grows.

    Attributes:
        addresses: of the memory that `tokens` and `generated` show, until a token is added.
    """

    addresses: tuple[int, int]

    def __init__(self, prompt: Iterable[int]) -> None:
        """Start with the tokens of the prompt, none of them generated."""
        self._places = {token: place for place, token in enumerate(dict.fromkeys(prompt))}
        tokens = np.array([*self._places, *[0] * _ROOM], np.int32)
        self._keep(tokens, np.zeros(len(tokens), np.int32))

    def __len__(self) -> int:
        """Number of distinct tokens, m."""
        return len(self._places)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """int32 [m]: tokens in the order in which they came first."""
        return self._tokens[: len(self)]

    @property
    def generated(self) -> NDArray[np.int32]:
        """int32 [m]: how often each was generated."""
        return self._generated[: len(self)]

    def add(self, token_id: int) -> None:
        """Count a generated token."""
        place = self._places.setdefault(token_id, len(self._places))
        if place == len(self._tokens):
            more = np.zeros_like(self._tokens)
            self._keep(np.append(self._tokens, more), np.append(self._generated, more))
        self._tokens[place] = token_id
        self._generated[place] += 1

    def _keep(self, tokens: NDArray[np.int32], generated: NDArray[np.int32]) -> None:
        self._tokens, self._generated = tokens, generated
        self.addresses = address_of(tokens), address_of(generated)

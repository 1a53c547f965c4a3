"""SentencePiece's BPE in compiled code."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from worker.errors import TooLongError
from worker.kernels.piece_merge import (
    LONGEST_TEXT,
    LONGEST_TOKEN,
    MOST_RANKS,
    encode_pieces,
)

from .token_table import TokenTable, code_points

_ABSENT = -1


class PieceEncoder:
    """Encodes texts; other threads run meanwhile."""

    def __init__(
        self,
        ids: Mapping[str, int],
        costs: NDArray[np.float64],
        byte_ids: Mapping[int, int],
        unknown: int | None,
    ) -> None:
        """Take a vocabulary.

        Args:
            ids: text to token.
            costs: by token; the least is merged first. float64 [vocab_size].
            byte_ids: byte to token.
            unknown: the token of what has no bytes either.
        """
        reachable = {text: token for text, token in ids.items() if len(text) <= LONGEST_TOKEN}
        self._table = TokenTable(reachable, with_prefixes=False)
        self._ranks = np.unique(costs, return_inverse=True)[1].astype(np.int64)
        assert len(self._ranks) <= MOST_RANKS
        self._byte_ids = np.array([byte_ids.get(byte, _ABSENT) for byte in range(256)], np.int64)
        self._unknown = _ABSENT if unknown is None else unknown

    def encode(self, text: str, word_ends: Sequence[int]) -> tuple[list[int], str | None]:
        """Encode a text.

        Args:
            text: not empty.
            word_ends: where the words end, the last with the text; no token spans two words.

        Returns:
            The tokens, and the first character that has none.

        Raises:
            TooLongError: the text has a gibi of characters or more.
        """
        if len(text) >= LONGEST_TEXT:
            raise TooLongError(f"prompt too long: {len(text)} characters; shorten the prompt")
        ids = np.empty(4 * len(text), np.int64)
        count = encode_pieces(
            code_points(text),
            np.array(word_ends, np.int64),
            self._table.slots,
            self._table.texts,
            self._table.powers,
            self._ranks,
            self._byte_ids,
            self._unknown,
            ids,
        )
        if count < 0:
            return [], text[-1 - count]
        return ids[:count].tolist(), None

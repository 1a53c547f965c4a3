"""Unigram segmentation in compiled code."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worker.kernels.best_segmentation import encode_best

from .token_table import TokenTable, code_points


class BestSegmentation:
    """Encodes texts; other threads run meanwhile."""

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: NDArray[np.float64],
        unknown: int,
        unknown_score: float,
    ) -> None:
        """Take a vocabulary.

        Args:
            ids: text to token.
            scores: by token; the greatest sum wins. float64 [vocab_size].
            unknown: the token of characters that are none.
            unknown_score: its score.
        """
        self._table = TokenTable(ids, with_prefixes=True)
        self._scores = scores
        self._unknown = unknown
        self._unknown_score = unknown_score

    def encode(self, text: str) -> list[int]:
        """Encode a text that is not empty."""
        ids = np.empty(len(text), np.int64)
        count = encode_best(
            code_points(text),
            self._table.slots,
            self._table.texts,
            self._table.powers,
            self._scores,
            self._unknown,
            self._unknown_score,
            ids,
        )
        found: list[int] = ids[:count].tolist()
        return found

"""What a step gives for rows that sample: the best token of each, logits where asked for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Logits:
    """Logits of R rows, in the order of the batch's logit rows; overwritten by the next step.

    A row that takes its most likely token needs no logits at all: a model need not write them.

    Attributes:
        rows: float32 [R, vocab or more]; a row that was not kept holds anything. Logits past the
            tokenizer's last token are padding and mean nothing.
        kept: bool [R]: whether a row holds its logits.
        best_token: int32 [R]: token of the largest logit, the lowest id among equals; -1 where a
            logit of the row is NaN or infinite.
        best_value: float32 [R]: that logit; undefined where there is none.
    """

    rows: NDArray[np.float32]
    kept: NDArray[np.bool_]
    best_token: NDArray[np.int32]
    best_value: NDArray[np.float32]

    def __len__(self) -> int:
        """R."""
        return len(self.best_token)

"""Where a step leaves its logits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .logits import Logits
from .workspace import Memory


@dataclass(frozen=True, slots=True)
class HeadMemory:
    """Logits and best tokens of a step's logit rows.

    Attributes:
        logits: float32 [R, vocab_size]; only rows that keep their logits are written.
        best_token: int32 [R], see `Logits`.
        best_value: float32 [R].
    """

    logits: Memory
    best_token: NDArray[np.int32]
    best_value: NDArray[np.float32]

    def read(self, keep_logits: NDArray[np.bool_]) -> Logits:
        """The logits of a step that has run for a batch with these rows."""
        rows = len(keep_logits)
        values = self.logits.array[:rows]
        return Logits(values, keep_logits, self.best_token[:rows], self.best_value[:rows])

"""From the last layer's values to logits."""

from collections.abc import Sequence

import numpy as np

from worker.kernels.argmax import best_token
from worker.kernels.native import real_word
from worker.kernels.soft_cap import soft_cap_task

from .config import ModelConfig
from .head_memory import HeadMemory
from .linear import Linear
from .norm import Norm
from .packed_head import PackedHead
from .rows import Rows
from .step import Step
from .workspace import Memory


class OutputHead:
    """Final norm and projection to the vocabulary, for the rows that need logits only."""

    def __init__(
        self, norm: Norm, weights: PackedHead | Sequence[Linear], config: ModelConfig
    ) -> None:
        """Keep the weights: packed in one piece, or slices one after the other."""
        self._norm = norm
        self._weights = weights
        self._config = config

    def __call__(self, x: Memory, step: Step) -> HeadMemory:
        """Logits of the step's logit rows, and their best tokens.

        Args:
            x: [T, hidden_size].
            step: the step.
        """
        rows = step.norm_of_logit_rows(self._norm, x)
        capacity = rows.row_set.capacity
        memory = HeadMemory(
            step.floats("logits", self._config.vocab_size, rows.row_set),
            np.empty(capacity, np.int32),
            np.empty(capacity, np.float32),
        )
        if isinstance(self._weights, PackedHead):
            self._weights.record(step, rows, memory, self._config)
        else:
            self._record_slices(step, rows, memory, self._weights)
        return memory

    def _record_slices(
        self, step: Step, rows: Rows, memory: HeadMemory, slices: Sequence[Linear]
    ) -> None:
        config, logits = self._config, memory.logits
        for part in slices:
            part.record(step, "lm_head", rows, logits, adds=False)
        if config.logit_cap is not None:
            words = (logits.address, logits.stride, logits.width, real_word(config.logit_cap))
            step.by_rows("lm_head", soft_cap_task, words, rows.row_set)

        def find(row: int) -> None:
            best = best_token(logits.array[row, : config.num_tokens])
            memory.best_token[row], memory.best_value[row] = best

        step.call_by_row("lm_head", find, rows.row_set)

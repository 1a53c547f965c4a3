"""From the last layer's values to logits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.kernels.rms_norm import rms_norm
from worker.kernels.soft_cap import soft_cap
from worker.linear import Linear

from .config import ModelConfig
from .step import Step


class OutputHead:
    """Final norm and projection to the vocabulary, for the rows that need logits only."""

    def __init__(
        self, norm_weight: NDArray[np.float32], slices: Sequence[Linear], config: ModelConfig
    ) -> None:
        self._norm_weight = norm_weight
        self._slices = slices
        self._config = config

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Logits of the batch's logit rows.

        Args:
            x: [T, hidden_size] float32.
            step: the step.

        Returns:
            float32 [R, vocab_size].
        """
        config, wanted = self._config, step.batch.logit_rows
        rows = step.workspace.array("logit_rows", len(wanted), config.hidden_size)
        logits = step.workspace.array("logits", len(wanted), config.vocab_size)
        if len(wanted) == 0:
            return logits
        with step.stages.stage("norm") as record:
            np.take(x, wanted, axis=0, out=rows)
            rms_norm(rows, self._norm_weight, rows, config.rms_norm_eps)
            record.output(rows)
        with step.stages.stage("lm_head") as record:
            first = 0
            for part in self._slices:
                part(rows, logits, first)
                first += part.outputs
            if config.logit_cap is not None:
                soft_cap(logits, config.logit_cap)
            record.output(logits)
        return logits

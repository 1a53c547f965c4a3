"""From the last layer's values to logits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.kernels.argmax import best_token
from worker.kernels.rms_norm import rms_norm
from worker.kernels.soft_cap import soft_cap
from worker.linear import Linear
from worker.thread_team import ThreadTeam

from .config import ModelConfig
from .logits import Logits
from .step import Step


class OutputHead:
    """Final norm and projection to the vocabulary, for the rows that need logits only."""

    def __init__(
        self,
        norm_weight: NDArray[np.float32],
        slices: Sequence[Linear],
        config: ModelConfig,
        team: ThreadTeam,
    ) -> None:
        self._norm_weight = norm_weight
        self._slices = slices
        self._config = config
        self._team = team

    def __call__(self, x: NDArray[np.float32], step: Step) -> Logits:
        """Logits of the batch's logit rows, all of them kept.

        Args:
            x: [T, hidden_size] float32.
            step: the step.
        """
        config, wanted = self._config, step.batch.logit_rows
        rows = step.workspace.array("logit_rows", len(wanted), config.hidden_size)
        logits = step.workspace.array("logits", len(wanted), config.vocab_size)
        if len(wanted) == 0:
            return self._with_best(logits)
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
            return self._with_best(logits)

    def _with_best(self, logits: NDArray[np.float32]) -> Logits:
        rows = len(logits)
        tokens, values = np.empty(rows, np.int32), np.empty(rows, np.float32)

        def find(row: int) -> None:
            tokens[row], values[row] = best_token(logits[row, : self._config.num_tokens])

        self._team.run(find, rows)
        return Logits(logits, np.ones(rows, np.bool_), tokens, values)

"""Root mean square norm with its learned weight."""

import numpy as np
from numpy.typing import NDArray

from worker.kernels.rms_norm import rms_norm

from .step import Step


class RMSNorm:
    """Normalises a token's values, or each head of them."""

    def __init__(self, weight: NDArray[np.float32], eps: float) -> None:
        self._weight = weight
        self._eps = eps

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Normalise x [T, hidden_size] into scratch memory; x is left as it is."""
        return self._apply(x, step.array("norm", x.shape[1]), step, 0, 1)

    def in_place(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Normalise x [T, hidden_size] itself, and return it."""
        return self._apply(x, x, step, 0, 1)

    def heads_in_place(
        self, x: NDArray[np.float32], step: Step, first_head: int, heads: int
    ) -> None:
        """Normalise heads of x [T, columns] one by one, each as wide as the weight."""
        self._apply(x, x, step, first_head * len(self._weight), heads)

    def _apply(
        self,
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        step: Step,
        first_column: int,
        vectors: int,
    ) -> NDArray[np.float32]:
        with step.stages.stage("norm") as record:
            step.over_tokens(
                lambda rows: rms_norm(
                    x[rows], self._weight, out[rows], self._eps, first_column, vectors
                )
            )
            record.output(out)
        return out

"""Norms with their learned weights."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Normalises a token's values, or each head of them, see `kernels.rms_norm`.

    Attributes:
        weight: float32 [width], or [heads, width] where each head has its own.
        eps: added to the mean of squares.
    """

    weight: NDArray[np.float32]
    eps: float


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """The same about the mean, see `kernels.layer_norm`.

    Attributes:
        weight: float32 [width], or [heads, width] where each head has its own.
        bias: float32 like the weight, added after; None for none.
        eps: added to the variance.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    eps: float


Norm = RMSNorm | LayerNorm

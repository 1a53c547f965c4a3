"""Root mean square norm with its learned weight."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Normalises a token's values, or each head of them, see `kernels.rms_norm`.

    Attributes:
        weight: float32 [width].
        eps: added to the mean of squares.
    """

    weight: NDArray[np.float32]
    eps: float

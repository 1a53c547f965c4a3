"""Linear projections: the seam between models and the arithmetic of their weights.

A model asks for y = x @ W.T + b and does not know how W is kept. Here W is a float32 matrix of
the dequant cache, multiplied by BLAS or the compiled kernel.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .dequant_cache import DequantCache
from .matmul import Matmul, MatmulKind


@dataclass(frozen=True, slots=True)
class ComputeConfig:
    """How weights are kept and multiplied.

    Attributes:
        mode: "f32": float32 copies of the weights.
        matmul: "blas": the library behind NumPy, once it has proven itself; "compiled": our kernel.
        dequant_cache_bytes: most bytes of float32 copies; None: all weights.
        dequant_cache_layers: most layers (and slices of the output head) copied; None: all.
    """

    mode: Literal["f32"] = "f32"
    matmul: MatmulKind = "blas"
    dequant_cache_bytes: int | None = None
    dequant_cache_layers: int | None = None


class Linear(Protocol):
    """A projection from `inputs` to `outputs` values."""

    @property
    def outputs(self) -> int:
        """Values of a result row."""

    def __call__(
        self, x: NDArray[np.float32], out: NDArray[np.float32], first_column: int = 0
    ) -> None:
        """Compute x @ W.T + b into columns of `out`.

        Args:
            x: [tokens, inputs] float32, C-contiguous.
            out: [tokens, columns] float32, C-contiguous.
            first_column: where the `outputs` columns start in `out`.
        """


class F32Linear:
    """A projection whose weight is a matrix of the dequant cache."""

    def __init__(
        self,
        cache: DequantCache,
        unit: int,
        index: int,
        matmul: Matmul,
        bias: NDArray[np.float32] | None = None,
    ) -> None:
        self._cache = cache
        self._unit = unit
        self._index = index
        self._matmul = matmul
        self._bias = bias

    @property
    def outputs(self) -> int:
        """Values of a result row."""
        return self._cache.units[self._unit].matrices[self._index].shape[0]

    def __call__(
        self, x: NDArray[np.float32], out: NDArray[np.float32], first_column: int = 0
    ) -> None:
        """Compute x @ W.T + b into columns of `out`, see `Linear`."""
        weight = self._cache.matrix(self._unit, self._index)
        self._matmul.multiply(weight, x, out, first_column)
        if self._bias is not None:
            out[:, first_column : first_column + len(self._bias)] += self._bias

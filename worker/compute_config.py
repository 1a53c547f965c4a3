"""How a model's weights are kept and multiplied."""

from dataclasses import dataclass
from typing import Literal

from .matmul import MatmulKind

ComputeMode = Literal["int8", "f32"]


@dataclass(frozen=True, slots=True)
class ComputeConfig:
    """How weights are kept and multiplied.

    Attributes:
        mode: "int8": integer kernels on the weights as they are quantised; "f32": float32 copies of
            the weights; "plan": nothing is computed, a model is only checked against its file.
        matmul: in "f32", "blas": the library behind NumPy, once it has proven itself; "compiled":
            our kernel.
        dequant_cache_bytes: most bytes of float32 copies; None: all weights that need one.
        dequant_cache_layers: most layers (and slices of the output head) copied; None: all.
    """

    mode: ComputeMode | Literal["plan"] = "int8"
    matmul: MatmulKind = "blas"
    dequant_cache_bytes: int | None = None
    dequant_cache_layers: int | None = None

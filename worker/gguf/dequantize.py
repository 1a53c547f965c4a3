"""Stored tensor rows to float32."""

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.errors import UnsupportedModelError

from .quant_types import SUPPORTED_TYPES, row_bytes, supported_names

__all__ = ["SUPPORTED_TYPES", "dequantize"]


def dequantize(
    raw: NDArray[np.uint8], qtype: GGMLQuantizationType, out: NDArray[np.float32]
) -> None:
    """Write the values of stored rows into ``out``, bit for bit as ``gguf.quants.dequantize``.

    Holds no lock: threads may each take a range of rows.

    Args:
        raw: [rows, row_bytes], C-contiguous; may be read-only and unaligned.
        qtype: type of the rows.
        out: float32 [rows, columns], C-contiguous.

    Raises:
        UnsupportedModelError: the type cannot be dequantised.
        ValueError: the arrays do not fit each other.
    """
    # Numba is slow to import and only needed once weights are read.
    from worker.kernels.dequantize import KERNELS

    if qtype not in SUPPORTED_TYPES:
        raise UnsupportedModelError(
            f"{qtype.name} cannot be dequantised; supported types: {supported_names()}"
        )
    if not (raw.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError("raw and out must be C-contiguous")
    rows, columns = out.shape
    if raw.shape != (rows, row_bytes(columns, qtype)):
        raise ValueError(f"raw {raw.shape} does not hold {qtype.name} values of shape {out.shape}")
    source = raw.reshape(-1)
    source.flags.writeable = False  # one compiled version serves maps and ordinary arrays
    KERNELS[qtype](source, out.reshape(-1))

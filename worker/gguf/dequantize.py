"""Stored tensor rows to float32."""

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.errors import UnsupportedModelError

from .quant_types import SUPPORTED_TYPES, row_bytes, supported_names

__all__ = ["STREAMED_BYTES", "SUPPORTED_TYPES", "dequantize"]

STREAMED_BYTES = 32 << 20
"""From so many bytes of output on it is best streamed: it would not stay in a cache anyway."""

_LINE = 16  # values
_STREAM_ALIGNMENT = 16  # bytes


def dequantize(
    raw: NDArray[np.uint8],
    qtype: GGMLQuantizationType,
    out: NDArray[np.float32],
    *,
    stream: bool = False,
) -> None:
    """Write the values of stored rows into ``out``, bit for bit as ``gguf.quants.dequantize``.

    Holds no lock: threads may each take a range of rows.

    Args:
        raw: [rows, row_bytes], C-contiguous; may be read-only and unaligned.
        qtype: type of the rows.
        out: float32 [rows, columns], C-contiguous.
        stream: write past the caches. That is faster when `out` belongs to something that does not
            fit them, and slower when it is read at once. Not done for values that do not fill
            whole lines of 16, or begin at no multiple of 16 bytes.

    Raises:
        UnsupportedModelError: the type cannot be dequantised.
        ValueError: the arrays do not fit each other.
    """
    # Numba is slow to import and only needed once weights are read.
    from worker.kernels.dequantize import KERNELS, end_streaming

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
    if stream and out.size % _LINE == 0 and out.ctypes.data % _STREAM_ALIGNMENT == 0:
        KERNELS[qtype](source, out.reshape(-1, _LINE))
        end_streaming()
    else:
        KERNELS[qtype](source, out.reshape(-1))

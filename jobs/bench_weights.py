"""Weights to bench kernels with: rows as a GGUF file stores them."""

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from numpy.typing import NDArray

from worker.gguf.quant_types import row_bytes
from worker.kernels.layouts import layout_of

_NO_INFINITY = 0x37
"""Bytes masked so hold no float16 of 1 or more, and no NaN, wherever the type keeps its scales."""


def random_rows(qtype: GGMLQuantizationType, rows: int, columns: int) -> NDArray[np.uint8]:
    """Rows of a type, uint8 [rows, row_bytes]: any codes, finite scales."""
    random = np.random.default_rng(int(qtype))
    layout = layout_of(qtype)
    if layout is not None and not layout.planes:  # plain floats
        values = random.standard_normal((rows, columns), np.float32)
        return quantize(values, qtype).view(np.uint8)
    raw = random.integers(0, 256, (rows, row_bytes(columns, qtype)), np.uint8)
    return raw & np.uint8(_NO_INFINITY)

"""The 6-bit scales that Q3_K, Q4_K and Q5_K keep packed in 12 bytes (ggml-common.h)."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel


@kernel
def k_scale_min(raw: NDArray[np.uint8], at: int, group: int) -> tuple[int, int]:
    """Unpack scale and minimum number ``group`` of 8 of Q4_K or Q5_K from the bytes at ``at``.

    Groups 0 to 3 have them in the low six bits of bytes g and 4 + g. Groups 4 to 7 have the low
    four in the nibbles of byte 4 + g, the high two at the top of bytes g - 4 and g.
    """
    if group < 4:
        return raw[at + group] & 63, raw[at + 4 + group] & 63
    low = raw[at + 4 + group]
    scale = (low & 15) | ((raw[at + group - 4] >> 2) & 48)
    minimum = (low >> 4) | ((raw[at + group] >> 2) & 48)
    return scale, minimum


@kernel
def q3_k_scale(raw: NDArray[np.uint8], at: int, group: int) -> np.int32:
    """Unpack scale number ``group`` of 16 of Q3_K from the bytes at ``at``: -32 to 31.

    It has its low four bits in a nibble of byte g % 8 and its high two in byte 8 + g % 4.
    """
    low = (np.int32(raw[at + group % 8]) >> (group // 8 * 4)) & 15
    high = (np.int32(raw[at + 8 + group % 4]) >> (group // 4 * 2)) & 3
    return (low | (high << 4)) - 32

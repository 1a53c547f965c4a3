"""Numbers in the bytes of a quant block, little-endian, at any address."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel

Raw = NDArray[np.uint8]


@kernel
def read_half(low: int, high: int) -> np.float32:
    """Two bytes of a float16 as float32, exactly; NaN payloads and infinities included."""
    bits = np.uint32(low) | (np.uint32(high) << np.uint32(8))
    sign = (bits & np.uint32(0x8000)) << np.uint32(16)
    magnitude = bits & np.uint32(0x7FFF)
    # A larger exponent bias by 112, and by as much again for infinity and NaN.
    bias = np.uint32(224 << 23) if magnitude >= np.uint32(0x7C00) else np.uint32(112 << 23)
    normal = np.uint32(sign | ((magnitude << np.uint32(13)) + bias)).view(np.float32)
    # Zeros and subnormals are multiples of 2^-24, all of them normal in float32.
    unit = np.uint32(sign | np.uint32(103 << 23)).view(np.float32)
    return normal if magnitude >= np.uint32(0x0400) else np.float32(magnitude) * unit


@kernel
def read_pair(raw: Raw, at: int) -> np.uint16:
    """Two bytes as a uint16."""
    return np.uint16(raw[at] | (np.uint16(raw[at + 1]) << 8))


@kernel
def read_quad(raw: Raw, at: int) -> np.int64:
    """Four bytes as an integer from 0 to 2^32 - 1."""
    return np.int64(read_pair(raw, at)) | (np.int64(read_pair(raw, at + 2)) << 16)


@kernel
def read_octet(raw: Raw, at: int) -> np.int64:
    """Eight bytes as the bits of an int64."""
    return read_quad(raw, at) | (read_quad(raw, at + 4) << 32)


@kernel
def half_power(exponent: int) -> np.float32:
    """The scale of MXFP4: 2^(exponent - 128); the two smallest are subnormal."""
    if exponent < 2:
        return np.uint32(0x00200000 << exponent).view(np.float32)
    return np.uint32((exponent - 1) << 23).view(np.float32)


@kernel
def half_e4m3(code: int) -> np.float32:
    """The scale of NVFP4: half of a float8 with 4 bits of exponent and 3 of mantissa, no sign."""
    exponent, mantissa = (code >> 3) & 15, code & 7
    if code == 0x7F:  # not a number, by the format; read as 0, as the format's authors do
        return np.float32(0)
    if exponent == 0:
        return np.float32(mantissa) * np.float32(2.0**-10)
    return np.uint32(((exponent + 119) << 23) | (mantissa << 20)).view(np.float32)

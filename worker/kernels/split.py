"""Compiled splitting of quant blocks into codes and scales: one kernel a quantised type.

Every kernel has the signature ``kernel(raw, codes, scales)``: ``raw`` uint8 [n_blocks *
block_bytes] holds whole quant blocks, ``codes`` uint8 [n_blocks * block_values] receives their
codes, a byte each in the order of the values, and ``scales`` uint8 [n_blocks * bytes] what the
block's `Layout` names: float16 numbers as stored, then a byte a scale or minimum. The layouts of
the blocks are those of ggml's ``block_*`` structs (ggml-common.h), see also dequantize.py.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from .codes import field, joined, load_codes, spread_bits, store_codes
from .jit import kernel
from .k_scales import k_scale_min, q3_k_scale

Bytes = NDArray[np.uint8]


@kernel
def _copy(raw: Bytes, at: int, out: Bytes, to: int, count: int) -> None:
    for i in range(count):
        out[to + i] = raw[at + i]


@kernel
def _nibbles(raw: Bytes, at: int, codes: Bytes, to: int) -> None:
    """Write 32 codes: low nibbles of 16 bytes first, then the high ones."""
    nibbles = load_codes(raw, at)
    store_codes(codes, to, field(nibbles, 0, 15))
    store_codes(codes, to + 16, field(nibbles, 4, 15))


@kernel
def _fives(raw: Bytes, fifths: int, at: int, codes: Bytes, to: int) -> None:
    """Write 32 codes: nibbles as above, the fifth bits in order in 4 bytes of their own."""
    nibbles = load_codes(raw, at)
    first = np.uint16(raw[fifths] | (np.uint16(raw[fifths + 1]) << 8))
    last = np.uint16(raw[fifths + 2] | (np.uint16(raw[fifths + 3]) << 8))
    store_codes(codes, to, joined(field(nibbles, 0, 15), spread_bits(first), 4))
    store_codes(codes, to + 16, joined(field(nibbles, 4, 15), spread_bits(last), 4))


@kernel
def _q4_0(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 32):
        _copy(raw, 18 * i, scales, 2 * i, 2)
        _nibbles(raw, 18 * i + 2, codes, 32 * i)


@kernel
def _q4_1(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 32):
        _copy(raw, 20 * i, scales, 4 * i, 4)
        _nibbles(raw, 20 * i + 4, codes, 32 * i)


@kernel
def _q5_0(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 32):
        _copy(raw, 22 * i, scales, 2 * i, 2)
        _fives(raw, 22 * i + 2, 22 * i + 6, codes, 32 * i)


@kernel
def _q5_1(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 32):
        _copy(raw, 24 * i, scales, 4 * i, 4)
        _fives(raw, 24 * i + 4, 24 * i + 8, codes, 32 * i)


@kernel
def _q8_0(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 32):
        _copy(raw, 34 * i, scales, 2 * i, 2)
        store_codes(codes, 32 * i, load_codes(raw, 34 * i + 2))
        store_codes(codes, 32 * i + 16, load_codes(raw, 34 * i + 18))


@kernel
def _q2_k(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 256):
        at, to = 84 * i, 256 * i
        _copy(raw, at + 80, scales, 20 * i, 4)
        _copy(raw, at, scales, 20 * i + 4, 16)
        for group in range(16):
            pairs = load_codes(raw, at + 16 + group // 8 * 32 + group % 2 * 16)
            store_codes(codes, to + 16 * group, field(pairs, group % 8 // 2 * 2, 3))


@kernel
def _q3_k(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 256):
        at, to = 110 * i, 256 * i
        _copy(raw, at + 108, scales, 18 * i, 2)
        for group in range(16):
            scales[18 * i + 2 + group] = np.uint8(q3_k_scale(raw, at + 96, group))
            pairs = load_codes(raw, at + 32 + group // 8 * 32 + group % 2 * 16)
            thirds = field(load_codes(raw, at + group % 2 * 16), group // 2, 1)
            code = joined(field(pairs, group % 8 // 2 * 2, 3), thirds, 2)
            store_codes(codes, to + 16 * group, code)


@kernel
def _k_scales(raw: Bytes, at: int, scales: Bytes, to: int) -> None:
    """Write d, dmin and eight pairs of scale and minimum."""
    _copy(raw, at, scales, to, 4)
    for group in range(8):
        scale, minimum = k_scale_min(raw, at + 4, group)
        scales[to + 4 + 2 * group] = scale
        scales[to + 5 + 2 * group] = minimum


@kernel
def _q4_k(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 256):
        at, to = 144 * i, 256 * i
        _k_scales(raw, at, scales, 20 * i)
        for group in range(8):
            for half in range(0, 32, 16):
                nibbles = load_codes(raw, at + 16 + group // 2 * 32 + half)
                code = field(nibbles, group % 2 * 4, 15)
                store_codes(codes, to + 32 * group + half, code)


@kernel
def _q5_k(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 256):
        at, to = 176 * i, 256 * i
        _k_scales(raw, at, scales, 20 * i)
        for group in range(8):
            for half in range(0, 32, 16):
                nibbles = load_codes(raw, at + 48 + group // 2 * 32 + half)
                fifths = field(load_codes(raw, at + 16 + half), group, 1)
                code = joined(field(nibbles, group % 2 * 4, 15), fifths, 4)
                store_codes(codes, to + 32 * group + half, code)


@kernel
def _q6_k(raw: Bytes, codes: Bytes, scales: Bytes) -> None:
    for i in range(codes.size // 256):
        at, to = 210 * i, 256 * i
        _copy(raw, at + 208, scales, 18 * i, 2)
        _copy(raw, at + 192, scales, 18 * i + 2, 16)
        for group in range(16):
            half, inside = group // 8, group % 8
            nibbles = load_codes(raw, at + half * 64 + inside % 4 * 16)
            pairs = load_codes(raw, at + 128 + half * 32 + inside % 2 * 16)
            low = field(nibbles, inside // 4 * 4, 15)
            code = joined(low, field(pairs, inside // 2 * 2, 3), 4)
            store_codes(codes, to + 16 * group, code)


SPLITTERS: Mapping[GGMLQuantizationType, Callable[[Bytes, Bytes, Bytes], None]] = MappingProxyType(
    {
        GGMLQuantizationType.Q4_0: _q4_0,
        GGMLQuantizationType.Q4_1: _q4_1,
        GGMLQuantizationType.Q5_0: _q5_0,
        GGMLQuantizationType.Q5_1: _q5_1,
        GGMLQuantizationType.Q8_0: _q8_0,
        GGMLQuantizationType.Q2_K: _q2_k,
        GGMLQuantizationType.Q3_K: _q3_k,
        GGMLQuantizationType.Q4_K: _q4_k,
        GGMLQuantizationType.Q5_K: _q5_k,
        GGMLQuantizationType.Q6_K: _q6_k,
    }
)
"""The kernel of each type."""

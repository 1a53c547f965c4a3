"""Compiled dequantisation: one kernel a tensor type.

Every kernel has the signature ``kernel(raw, out)``: ``raw`` uint8 [n_blocks * block_bytes] holds
whole quant blocks, ``out`` float32 [n_blocks * block_values] receives their values. Into an
``out`` [n_blocks * block_values / 16, 16] they are streamed past the caches: it must begin at a
multiple of 16 bytes, and `end_streaming` comes after the last kernel. The wrapper
``worker.gguf.dequantize`` checks sizes and places; kernels trust them. Results equal those of
``gguf.quants.dequantize`` bit for bit, so every product and sum is rounded to float32 in the same
order. The layouts are those of ggml's ``block_*`` structs (ggml-common.h); "d" is a float16 scale.

Nothing is shared between blocks: threads may each run a kernel on a range of rows.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from .codebook_dequantize import CODEBOOK_KERNELS
from .codes import (
    codes_of,
    fence,
    field,
    fp4_values,
    iq4_values,
    joined,
    load_codes,
    negated,
    spread_bits,
    trits,
    write_affine,
    write_brain_floats,
    write_floats,
    write_halves,
    write_scaled,
    write_signed,
    write_value,
)
from .jit import kernel
from .k_scales import k_scale_min, q3_k_scale
from .stored_numbers import half_e4m3, half_power, read_half, read_octet, read_pair, read_quad

Raw = NDArray[np.uint8]
Out = NDArray[np.float32]

_NIBBLES_OF_8 = 0x0F0F0F0F0F0F0F0F
_ONES_OF_8 = 0x0101010101010101


@kernel
def _f32(raw: Raw, out: Out) -> None:
    whole = out.size // 16 * 16
    for i in range(0, whole, 16):
        write_floats(out, i, raw, 4 * i)
    for i in range(whole, out.size):
        write_value(out, i, np.uint32(read_quad(raw, 4 * i)).view(np.float32))


@kernel
def _f16(raw: Raw, out: Out) -> None:
    whole = out.size // 16 * 16
    for i in range(0, whole, 16):
        write_halves(out, i, raw, 2 * i)
    for i in range(whole, out.size):
        write_value(out, i, read_half(raw[2 * i], raw[2 * i + 1]))


@kernel
def _bf16(raw: Raw, out: Out) -> None:
    whole = out.size // 16 * 16
    for i in range(0, whole, 16):
        write_brain_floats(out, i, raw, 2 * i)
    for i in range(whole, out.size):
        bits = np.uint32(read_pair(raw, 2 * i)) << np.uint32(16)
        write_value(out, i, np.uint32(bits).view(np.float32))


@kernel
def _q4_0(raw: Raw, out: Out) -> None:
    """d, 16 bytes: low nibbles are values 0 to 15, high nibbles 16 to 31."""
    for i in range(out.size // 32):
        at, to = i * 18, i * 32
        d = read_half(raw[at], raw[at + 1])
        nibbles = load_codes(raw, at + 2)
        write_scaled(out, to, field(nibbles, 0, 15), 8, d)
        write_scaled(out, to + 16, field(nibbles, 4, 15), 8, d)


@kernel
def _q4_1(raw: Raw, out: Out) -> None:
    """d, minimum, 16 bytes of nibbles as in Q4_0."""
    for i in range(out.size // 32):
        at, to = i * 20, i * 32
        d = read_half(raw[at], raw[at + 1])
        m = read_half(raw[at + 2], raw[at + 3])
        nibbles = load_codes(raw, at + 4)
        write_affine(out, to, field(nibbles, 0, 15), d, m)
        write_affine(out, to + 16, field(nibbles, 4, 15), d, m)


@kernel
def _q5_0(raw: Raw, out: Out) -> None:
    """d, 32 fifth bits, 16 bytes of nibbles as in Q4_0."""
    for i in range(out.size // 32):
        at, to = i * 22, i * 32
        d = read_half(raw[at], raw[at + 1])
        nibbles = load_codes(raw, at + 6)
        low = joined(field(nibbles, 0, 15), spread_bits(read_pair(raw, at + 2)), 4)
        high = joined(field(nibbles, 4, 15), spread_bits(read_pair(raw, at + 4)), 4)
        write_scaled(out, to, low, 16, d)
        write_scaled(out, to + 16, high, 16, d)


@kernel
def _q5_1(raw: Raw, out: Out) -> None:
    """d, minimum, 32 fifth bits, 16 bytes of nibbles as in Q4_0."""
    for i in range(out.size // 32):
        at, to = i * 24, i * 32
        d = read_half(raw[at], raw[at + 1])
        m = read_half(raw[at + 2], raw[at + 3])
        nibbles = load_codes(raw, at + 8)
        low = joined(field(nibbles, 0, 15), spread_bits(read_pair(raw, at + 4)), 4)
        high = joined(field(nibbles, 4, 15), spread_bits(read_pair(raw, at + 6)), 4)
        write_affine(out, to, low, d, m)
        write_affine(out, to + 16, high, d, m)


@kernel
def _q8_0(raw: Raw, out: Out) -> None:
    """d, 32 signed bytes."""
    for i in range(out.size // 32):
        at, to = i * 34, i * 32
        d = read_half(raw[at], raw[at + 1])
        write_signed(out, to, load_codes(raw, at + 2), d)
        write_signed(out, to + 16, load_codes(raw, at + 18), d)


@kernel
def _q2_k(raw: Raw, out: Out) -> None:
    """16 bytes of scale and minimum nibbles, 64 bytes of 2-bit codes, d, dmin.

    The codes come in two halves of 32 bytes; each holds four runs of 32 values, two bits a run.
    """
    for i in range(out.size // 256):
        at, to = i * 84, i * 256
        d = read_half(raw[at + 80], raw[at + 81])
        dmin = read_half(raw[at + 82], raw[at + 83])
        for group in range(16):
            scale = raw[at + group]
            dl = d * np.float32(scale & 15)
            ml = dmin * np.float32(scale >> 4)
            codes = load_codes(raw, at + 16 + group // 8 * 32 + group % 2 * 16)
            write_affine(out, to + group * 16, field(codes, group % 8 // 2 * 2, 3), dl, -ml)


@kernel
def _q3_k(raw: Raw, out: Out) -> None:
    """32 bytes of third bits, 64 bytes of 2-bit codes as in Q2_K, 12 bytes of scales, d.

    A third bit that is not set stands for -4, one that is set for 0.
    """
    for i in range(out.size // 256):
        at, to = i * 110, i * 256
        d = read_half(raw[at + 108], raw[at + 109])
        for group in range(16):
            dl = d * np.float32(q3_k_scale(raw, at + 96, group))
            codes = load_codes(raw, at + 32 + group // 8 * 32 + group % 2 * 16)
            thirds = field(load_codes(raw, at + group % 2 * 16), group // 2, 1)
            codes = joined(field(codes, group % 8 // 2 * 2, 3), thirds, 2)
            write_scaled(out, to + group * 16, codes, 4, dl)


@kernel
def _q4_k(raw: Raw, out: Out) -> None:
    """d, dmin, 12 bytes of scales and minima, 128 bytes: 32 low nibbles, then 32 high ones."""
    for i in range(out.size // 256):
        at, to = i * 144, i * 256
        d = read_half(raw[at], raw[at + 1])
        dmin = read_half(raw[at + 2], raw[at + 3])
        for group in range(8):
            scale, minimum = k_scale_min(raw, at + 4, group)
            dl = d * np.float32(scale)
            ml = dmin * np.float32(minimum)
            for half in range(0, 32, 16):
                nibbles = load_codes(raw, at + 16 + group // 2 * 32 + half)
                codes = field(nibbles, group % 2 * 4, 15)
                write_affine(out, to + group * 32 + half, codes, dl, -ml)


@kernel
def _q5_k(raw: Raw, out: Out) -> None:
    """As Q4_K, with 32 bytes of fifth bits, bit g for group g, in front of the nibbles."""
    for i in range(out.size // 256):
        at, to = i * 176, i * 256
        d = read_half(raw[at], raw[at + 1])
        dmin = read_half(raw[at + 2], raw[at + 3])
        for group in range(8):
            scale, minimum = k_scale_min(raw, at + 4, group)
            dl = d * np.float32(scale)
            ml = dmin * np.float32(minimum)
            for half in range(0, 32, 16):
                nibbles = load_codes(raw, at + 48 + group // 2 * 32 + half)
                fifths = field(load_codes(raw, at + 16 + half), group, 1)
                codes = joined(field(nibbles, group % 2 * 4, 15), fifths, 4)
                write_affine(out, to + group * 32 + half, codes, dl, -ml)


@kernel
def _q6_k(raw: Raw, out: Out) -> None:
    """128 bytes of low nibbles, 64 of high bit pairs, 16 signed scales, d.

    Each half of 128 values has 64 bytes of nibbles (64 low ones, then 64 high ones) and 32 bytes
    of pairs (four runs of 32 values, two bits a run).
    """
    for i in range(out.size // 256):
        at, to = i * 210, i * 256
        d = read_half(raw[at + 208], raw[at + 209])
        for group in range(16):
            dl = d * np.float32(np.int8(raw[at + 192 + group]))
            half, inside = group // 8, group % 8
            nibbles = load_codes(raw, at + half * 64 + inside % 4 * 16)
            pairs = load_codes(raw, at + 128 + half * 32 + inside % 2 * 16)
            low = field(nibbles, inside // 4 * 4, 15)
            codes = joined(low, field(pairs, inside // 2 * 2, 3), 4)
            write_scaled(out, to + group * 16, codes, 32, dl)


@kernel
def _iq4_nl(raw: Raw, out: Out) -> None:
    """d, 16 bytes of nibbles as in Q4_0 that index a table of values."""
    for i in range(out.size // 32):
        at, to = i * 18, i * 32
        d = read_half(raw[at], raw[at + 1])
        nibbles = load_codes(raw, at + 2)
        write_signed(out, to, iq4_values(field(nibbles, 0, 15)), d)
        write_signed(out, to + 16, iq4_values(field(nibbles, 4, 15)), d)


@kernel
def _iq4_xs(raw: Raw, out: Out) -> None:
    """d, 16 bits with the high pairs of 8 scales, 4 bytes with their low nibbles, 128 bytes.

    Every 16 bytes of nibbles hold 32 values as in IQ4_NL.
    """
    for i in range(out.size // 256):
        at, to = i * 136, i * 256
        d = read_half(raw[at], raw[at + 1])
        pairs = np.int32(read_pair(raw, at + 2))
        for group in range(8):
            low = (np.int32(raw[at + 4 + group // 2]) >> (group % 2 * 4)) & 15
            high = (pairs >> (group * 2)) & 3
            dl = d * np.float32((low | (high << 4)) - 32)
            nibbles = load_codes(raw, at + 8 + group * 16)
            write_signed(out, to + group * 32, iq4_values(field(nibbles, 0, 15)), dl)
            write_signed(out, to + group * 32 + 16, iq4_values(field(nibbles, 4, 15)), dl)


@kernel
def _mxfp4(raw: Raw, out: Out) -> None:
    """Exponent of the scale, 16 bytes of nibbles as in Q4_0: 4-bit floats."""
    for i in range(out.size // 32):
        at, to = i * 17, i * 32
        d = half_power(raw[at])
        nibbles = load_codes(raw, at + 1)
        write_signed(out, to, fp4_values(field(nibbles, 0, 15)), d)
        write_signed(out, to + 16, fp4_values(field(nibbles, 4, 15)), d)


@kernel
def _nvfp4(raw: Raw, out: Out) -> None:
    """4 bytes of scales, 32 bytes of nibbles: every 8 hold 16 values, low nibbles first."""
    for i in range(out.size // 64):
        at, to = i * 36, i * 64
        for group in range(4):
            nibbles = read_octet(raw, at + 4 + group * 8)
            codes = codes_of(nibbles & _NIBBLES_OF_8, (nibbles >> 4) & _NIBBLES_OF_8)
            write_signed(out, to + group * 16, fp4_values(codes), half_e4m3(raw[at + group]))


@kernel
def _q1_0(raw: Raw, out: Out) -> None:
    """d, 128 bits: 1 for d, 0 for -d."""
    ones = codes_of(_ONES_OF_8, _ONES_OF_8)
    for i in range(out.size // 128):
        at, to = i * 18, i * 128
        d = read_half(raw[at], raw[at + 1])
        for group in range(8):
            bits = read_pair(raw, at + 2 + group * 2)
            write_signed(out, to + group * 16, negated(ones, bits ^ 0xFFFF), d)


@kernel
def _tq1_0(raw: Raw, out: Out) -> None:
    """48 bytes of 5 ternary digits, 4 bytes of 4, d; a byte is a fraction of 256 in base 3.

    The first 32 bytes hold five runs of 32 values, the next 16 five runs of 16 values, the last 4
    four runs of 4 values; the first digit of every byte belongs to the first run.
    """
    for i in range(out.size // 256):
        at, to = i * 54, i * 256
        d = read_half(raw[at + 52], raw[at + 53])
        power = 1
        for digit in range(5):
            for part in range(0, 32, 16):
                codes = trits(load_codes(raw, at + part), power)
                write_scaled(out, to + digit * 32 + part, codes, 1, d)
            codes = trits(load_codes(raw, at + 32), power)
            write_scaled(out, to + 160 + digit * 16, codes, 1, d)
            if digit < 4:
                for j in range(4):
                    fraction = np.int32(raw[at + 48 + j]) * power & 255
                    value = np.float32((fraction * 3 >> 8) - 1)
                    write_value(out, to + 240 + digit * 4 + j, value * d)
            power *= 3


@kernel
def _tq2_0(raw: Raw, out: Out) -> None:
    """64 bytes of 2-bit codes, d: every 32 bytes hold four runs of 32 values, two bits a run."""
    for i in range(out.size // 256):
        at, to = i * 66, i * 256
        d = read_half(raw[at + 64], raw[at + 65])
        for group in range(16):
            codes = load_codes(raw, at + group // 8 * 32 + group % 2 * 16)
            write_scaled(out, to + group * 16, field(codes, group % 8 // 2 * 2, 3), 1, d)


@kernel
def end_streaming() -> None:
    """Have all that this thread has streamed in memory before it tells another thread of it."""
    fence()


KERNELS: Mapping[GGMLQuantizationType, Callable[[Raw, Out], None]] = MappingProxyType(
    {
        GGMLQuantizationType.F32: _f32,
        GGMLQuantizationType.F16: _f16,
        GGMLQuantizationType.BF16: _bf16,
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
        GGMLQuantizationType.IQ4_NL: _iq4_nl,
        GGMLQuantizationType.IQ4_XS: _iq4_xs,
        GGMLQuantizationType.MXFP4: _mxfp4,
        GGMLQuantizationType.NVFP4: _nvfp4,
        GGMLQuantizationType.Q1_0: _q1_0,
        GGMLQuantizationType.TQ1_0: _tq1_0,
        GGMLQuantizationType.TQ2_0: _tq2_0,
        **CODEBOOK_KERNELS,
    }
)
"""The kernel of each type."""

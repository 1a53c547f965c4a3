"""Compiled dequantisation of the types that look values up in a codebook: IQ1, IQ2 and IQ3.

A codebook is int64 [entries]; an entry holds 8 codes (4 in its low half for IQ3), a signed byte
each. See dequantize.py for what all kernels have in common.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from .codebooks import codebook
from .codes import codes_of, negated, write_signed
from .jit import kernel
from .stored_numbers import read_half, read_pair, read_quad

Raw = NDArray[np.uint8]
Out = NDArray[np.float32]
Codebook = NDArray[np.int64]

_IQ1_CODES = 2048  # of one sign of the shift


@kernel
def _even_signs(bits: np.int64) -> np.int64:
    """Eight signs of which seven are stored: the eighth makes their number even."""
    parity = bits ^ (bits >> 4)
    parity ^= parity >> 2
    parity ^= parity >> 1
    return bits | ((parity & 1) << 7)


@kernel
def _iq2_xxs(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, then for every 32 values 4 indices and a word: 4 times 7 signs, 4 bits of scale."""
    for i in range(out.size // 256):
        d = read_half(raw[i * 66], raw[i * 66 + 1])
        for group in range(8):
            at, to = i * 66 + 2 + group * 8, i * 256 + group * 32
            word = read_quad(raw, at + 4)
            dl = d * (np.float32(0.5) + np.float32(word >> 28)) * np.float32(0.25)
            for part in range(2):
                signs = _even_signs((word >> (14 * part)) & 127)
                signs |= _even_signs((word >> (14 * part + 7)) & 127) << 8
                first, second = raw[at + 2 * part], raw[at + 2 * part + 1]
                codes = codes_of(codebook[first], codebook[second])
                write_signed(out, to + part * 16, negated(codes, signs), dl)


@kernel
def _iq2_xs(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, 32 times 9 bits of index and 7 signs, 8 bytes of scales, a nibble for 16 values."""
    for i in range(out.size // 256):
        at, to = i * 74, i * 256
        d = read_half(raw[at], raw[at + 1])
        for group in range(16):
            scale = (raw[at + 66 + group // 2] >> (group % 2 * 4)) & 15
            dl = d * (np.float32(0.5) + np.float32(scale)) * np.float32(0.25)
            first = np.int64(read_pair(raw, at + 2 + group * 4))
            second = np.int64(read_pair(raw, at + 4 + group * 4))
            signs = _even_signs(first >> 9) | (_even_signs(second >> 9) << 8)
            codes = codes_of(codebook[first & 511], codebook[second & 511])
            write_signed(out, to + group * 16, negated(codes, signs), dl)


@kernel
def _iq2_s(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, 32 low bytes of indices, 32 bytes of signs, 8 of the indices' high pairs, 8 of scales."""
    for i in range(out.size // 256):
        at, to = i * 82, i * 256
        d = read_half(raw[at], raw[at + 1])
        for group in range(16):
            scale = (raw[at + 74 + group // 2] >> (group % 2 * 4)) & 15
            dl = d * (np.float32(0.5) + np.float32(scale)) * np.float32(0.25)
            pairs = np.int64(raw[at + 66 + group // 2]) >> (group % 2 * 4)
            first = np.int64(raw[at + 2 + group * 2]) | ((pairs & 3) << 8)
            second = np.int64(raw[at + 3 + group * 2]) | ((pairs & 12) << 6)
            codes = codes_of(codebook[first], codebook[second])
            signs = read_pair(raw, at + 34 + group * 2)
            write_signed(out, to + group * 16, negated(codes, signs), dl)


@kernel
def _iq3_xxs(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, 64 indices of 4 values, then for every 32 values a word as in IQ2_XXS."""
    for i in range(out.size // 256):
        at, to = i * 98, i * 256
        d = read_half(raw[at], raw[at + 1])
        for group in range(8):
            word = read_quad(raw, at + 66 + group * 4)
            dl = d * (np.float32(0.5) + np.float32(word >> 28)) * np.float32(0.5)
            for part in range(2):
                signs = _even_signs((word >> (14 * part)) & 127)
                signs |= _even_signs((word >> (14 * part + 7)) & 127) << 8
                index = at + 2 + group * 8 + part * 4
                low = codebook[raw[index]] | (codebook[raw[index + 1]] << 32)
                high = codebook[raw[index + 2]] | (codebook[raw[index + 3]] << 32)
                codes = negated(codes_of(low, high), signs)
                write_signed(out, to + group * 32 + part * 16, codes, dl)


@kernel
def _iq3_s(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, 64 low bytes of indices, 8 of their ninth bits, 32 of signs, 4 of scales.

    A nibble of scale is for 32 values.
    """
    for i in range(out.size // 256):
        at, to = i * 110, i * 256
        d = read_half(raw[at], raw[at + 1])
        for group in range(16):
            scale = (raw[at + 106 + group // 4] >> (group // 2 % 2 * 4)) & 15
            dl = d * np.float32(1 + 2 * scale)
            index, ninths = at + 2 + group * 4, np.int64(raw[at + 66 + group // 2])
            ninths = ninths >> (group % 2 * 4)
            low = codebook[raw[index] | ((ninths & 1) << 8)]
            low |= codebook[raw[index + 1] | ((ninths & 2) << 7)] << 32
            high = codebook[raw[index + 2] | ((ninths & 4) << 6)]
            high |= codebook[raw[index + 3] | ((ninths & 8) << 5)] << 32
            signs = read_pair(raw, at + 74 + group * 2)
            write_signed(out, to + group * 16, negated(codes_of(low, high), signs), dl)


@kernel
def _iq1_s(raw: Raw, out: Out, codebook: Codebook) -> None:
    """d, 32 low bytes of indices, 8 times 4 high triples, 3 bits of scale and the shift's sign.

    Codes are eighths: -1, 0 or 1, shifted up or down by an eighth.
    """
    for i in range(out.size // 256):
        at, to = i * 50, i * 256
        d = read_half(raw[at], raw[at + 1])
        for group in range(8):
            word = np.int64(read_pair(raw, at + 34 + group * 2))
            dl = d * np.float32(2 * ((word >> 12) & 7) + 1) * np.float32(0.125)
            book = (word >> 15) * _IQ1_CODES
            for part in range(2):
                triples, index = word >> (6 * part), at + 2 + group * 4 + part * 2
                first = raw[index] | ((triples & 7) << 8)
                second = raw[index + 1] | ((triples & 56) << 5)
                codes = codes_of(codebook[book + first], codebook[book + second])
                write_signed(out, to + group * 32 + part * 16, codes, dl)


@kernel
def _iq1_m(raw: Raw, out: Out, codebook: Codebook) -> None:
    """32 low bytes of indices, 16 bytes of high triples and signs of shifts, 4 words of scales.

    A nibble of the 16 bytes is a triple and a sign as in IQ1_S. Each word holds four scales of 3
    bits, for 16 values each, and a nibble of d, the lowest first.
    """
    for i in range(out.size // 256):
        at, to = i * 56, i * 256
        scales = at + 48
        low = (raw[scales + 1] >> 4) | (raw[scales + 3] & 240)
        high = (raw[scales + 5] >> 4) | (raw[scales + 7] & 240)
        d = read_half(low, high)
        for group in range(16):
            word = np.int64(read_pair(raw, scales + group // 4 * 2))
            dl = d * np.float32(2 * ((word >> (group % 4 * 3)) & 7) + 1) * np.float32(0.125)
            nibbles, index = np.int64(raw[at + 32 + group]), at + group * 2
            first = raw[index] | ((nibbles & 7) << 8) | ((nibbles & 8) << 8)
            second = raw[index + 1] | ((nibbles & 112) << 4) | ((nibbles & 128) << 4)
            write_signed(out, to + group * 16, codes_of(codebook[first], codebook[second]), dl)


def _with_codebook(
    kernel: Callable[[Raw, Out, Codebook], None], qtype: GGMLQuantizationType
) -> Callable[[Raw, Out], None]:
    """A kernel that looks its codebook up itself, when it is first needed."""

    def dequantise(raw: Raw, out: Out) -> None:
        kernel(raw, out, codebook(qtype))

    return dequantise


CODEBOOK_KERNELS: Mapping[GGMLQuantizationType, Callable[[Raw, Out], None]] = MappingProxyType(
    {
        qtype: _with_codebook(kernel, qtype)
        for qtype, kernel in (
            (GGMLQuantizationType.IQ1_S, _iq1_s),
            (GGMLQuantizationType.IQ1_M, _iq1_m),
            (GGMLQuantizationType.IQ2_XXS, _iq2_xxs),
            (GGMLQuantizationType.IQ2_XS, _iq2_xs),
            (GGMLQuantizationType.IQ2_S, _iq2_s),
            (GGMLQuantizationType.IQ3_XXS, _iq3_xxs),
            (GGMLQuantizationType.IQ3_S, _iq3_s),
        )
    }
)
"""The kernel of each type."""

"""How packed weights lie in memory: one description a tensor type.

A packed tensor is a row of *row blocks* of 16 rows; the last one is filled up with rows of zeros.
A row block starts on a cache line and is

    [codes of the first 32 columns][of the next 32] ...  [scales ...]  [zeros up to 64 bytes]

so that one instruction works on the same columns of 16 rows, a row in each 32-bit lane, and nothing
is ever summed across lanes.

Codes are unsigned (signed for Q8_0) and are cut into *planes* of 8, 4, 2 or 1 bits. A plane is
made of vectors of 64 bytes; byte 4 * r + i of a vector belongs to row r and, with *quad* j of eight
quads, to column 4 * j + i of the 32:

* 8 bits: vector j holds quad j;
* 4 bits: vector j holds quad j in the low bits and quad j + 4 in the high bits;
* 2 bits: vector h holds quads 4 * h to 4 * h + 3, from the lowest bits on;
* 1 bit: the one vector holds quad j in bit j.

Scales are kept as the file has them, so a packed weight stands for the very value of the file.
For every 32 or 256 columns the 16 rows' first float16 come first, then their second one, then
their first byte, and so on.

Plain floats have neither codes nor scales: for each column 16 values as they are stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

LAYOUT_VERSION = 1
"""Raised with every change of what a packed tensor looks like: packed files carry it."""

ROWS = 16
"""Rows of a row block."""

CODE_COLUMNS = 32
"""Columns whose codes stand together."""

ALIGNMENT = 64
"""Bytes: row blocks start on a cache line."""


@dataclass(frozen=True, slots=True)
class Plane:
    """Some bits of every code.

    Attributes:
        bits: 8, 4, 2 or 1 bits.
        shift: the lowest of them within the code.
    """

    bits: int
    shift: int = 0

    @property
    def n_bytes(self) -> int:
        """Bytes for 32 columns of 16 rows."""
        return ROWS * CODE_COLUMNS * self.bits // 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The packed form of a tensor type.

    Attributes:
        qtype: the type.
        planes: of the codes, as they follow each other; empty for plain floats.
        scale_halves: float16 numbers of a row's quant block.
        scale_bytes: bytes of scales and minima of a row's quant block, behind the numbers.
    """

    qtype: GGMLQuantizationType
    planes: tuple[Plane, ...] = ()
    scale_halves: int = 0
    scale_bytes: int = 0

    @property
    def block_columns(self) -> int:
        """Columns of a quant block: columns are a multiple of it. 32 or 256; 1 for floats."""
        return int(GGML_QUANT_SIZES[self.qtype][0])

    @property
    def code_record_bytes(self) -> int:
        """Bytes of 16 rows' codes for 32 columns; for floats, of 16 values of one column."""
        if not self.planes:
            return ROWS * int(GGML_QUANT_SIZES[self.qtype][1])
        return sum(plane.n_bytes for plane in self.planes)

    @property
    def scale_record_bytes(self) -> int:
        """Bytes of 16 rows' scales for `block_columns` columns; 0 for floats."""
        return ROWS * (2 * self.scale_halves + self.scale_bytes)

    def code_bytes(self, columns: int) -> int:
        """Bytes of a row block's codes, which is where its scales begin."""
        step = CODE_COLUMNS if self.planes else 1
        return columns // step * self.code_record_bytes

    def row_block_bytes(self, columns: int) -> int:
        """Bytes from one row block to the next, a multiple of 64."""
        scales = columns // self.block_columns * self.scale_record_bytes
        return -(-(self.code_bytes(columns) + scales) // ALIGNMENT) * ALIGNMENT

    def packed_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a packed tensor."""
        return row_blocks(rows) * self.row_block_bytes(columns)


def row_blocks(rows: int) -> int:
    """Count the row blocks of a tensor; the last one may not be full."""
    return -(-rows // ROWS)


def layout_of(qtype: GGMLQuantizationType) -> Layout | None:
    """Give the layout of a type; None when it has no packed form and is dequantised instead."""
    return _LAYOUTS.get(qtype)


_Q = GGMLQuantizationType
_NIBBLES = (Plane(4),)
_FIVE_BITS = (Plane(4), Plane(1, shift=4))
_SIX_BITS = (Plane(4), Plane(2, shift=4))
_PAIRS = (Plane(2),)
_THREE_BITS = (Plane(2), Plane(1, shift=2))

_LAYOUTS: Mapping[GGMLQuantizationType, Layout] = MappingProxyType(
    {
        layout.qtype: layout
        for layout in (
            Layout(_Q.Q4_0, _NIBBLES, scale_halves=1),
            Layout(_Q.Q4_1, _NIBBLES, scale_halves=2),
            Layout(_Q.Q5_0, _FIVE_BITS, scale_halves=1),
            Layout(_Q.Q5_1, _FIVE_BITS, scale_halves=2),
            Layout(_Q.Q8_0, (Plane(8),), scale_halves=1),
            # d and dmin, then for every 32 columns a scale and a minimum.
            Layout(_Q.Q4_K, _NIBBLES, scale_halves=2, scale_bytes=16),
            Layout(_Q.Q5_K, _FIVE_BITS, scale_halves=2, scale_bytes=16),
            # d, then for every 16 columns a signed scale.
            Layout(_Q.Q6_K, _SIX_BITS, scale_halves=1, scale_bytes=16),
            Layout(_Q.Q3_K, _THREE_BITS, scale_halves=1, scale_bytes=16),
            # d and dmin, then for every 16 columns a nibble of scale and a nibble of minimum.
            Layout(_Q.Q2_K, _PAIRS, scale_halves=2, scale_bytes=16),
            Layout(_Q.F16),
            Layout(_Q.BF16),
            Layout(_Q.F32),
        )
    }
)

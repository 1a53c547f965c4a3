"""Compiled packing: rows as a GGUF file stores them to row blocks, see layouts.py.

Two steps: split.py takes quant blocks apart into a byte a code and the scales; here these are
woven together, the same way for all types. Nothing is rounded: a packed weight stands for
the value of the file bit for bit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .layouts import CODE_COLUMNS, ROWS, Layout, row_blocks
from .split import SPLITTERS, Bytes

_QUADS = CODE_COLUMNS // 4
_VECTOR = ROWS * 4  # bytes of a vector: four codes of each row


def pack_rows(raw: Bytes, layout: Layout, columns: int, out: Bytes) -> None:
    """Pack rows into row blocks; rows that fill up the last one are zero.

    Holds no lock: threads may each take a range of rows that starts at a multiple of 16.

    Args:
        raw: [rows, row_bytes] uint8, C-contiguous; may be read-only and unaligned.
        layout: of the rows' type.
        columns: values of a row, a multiple of the type's quant block.
        out: [layout.packed_bytes(rows, columns)] uint8, contiguous, at an even multiple of 4 bytes.
    """
    expected = layout.packed_bytes(len(raw), columns)
    assert out.shape == (expected,), (out.shape, expected)
    assert raw.flags.c_contiguous, f"an array with strides {raw.strides} is not contiguous"
    source = raw.reshape(-1)
    source.flags.writeable = False  # one compiled version serves maps and ordinary arrays
    if layout.planes:
        _pack_quantised(source, layout, len(raw), columns, out)
    else:
        _pack_floats(source, layout, len(raw), columns, out)


def _pack_quantised(source: Bytes, layout: Layout, rows: int, columns: int, out: Bytes) -> None:
    row_scales = 2 * layout.scale_halves + layout.scale_bytes
    row_scales *= columns // layout.block_columns
    padded = row_blocks(rows) * ROWS
    codes = np.empty(padded * columns, np.uint8)
    scales = np.empty(padded * row_scales, np.uint8)
    SPLITTERS[layout.qtype](source, codes[: rows * columns], scales[: rows * row_scales])
    codes[rows * columns :] = 0
    scales[rows * row_scales :] = 0
    stride = layout.row_block_bytes(columns)
    at = 0
    for plane in layout.planes:
        _weave_plane(
            codes.view(np.uint32), columns // 4, plane.bits, plane.shift,
            out.view(np.uint32), stride // 4, at // 4, layout.code_record_bytes // 4,
        )  # fmt: skip
        at += plane.n_bytes
    start, halves = layout.code_bytes(columns), layout.scale_halves
    _weave_scales(scales, row_scales, halves, layout.scale_bytes, out, stride, start)


def _pack_floats(source: Bytes, layout: Layout, rows: int, columns: int, out: Bytes) -> None:
    words = np.uint32 if layout.code_record_bytes == 4 * ROWS else np.uint16
    values = source.view(words).reshape(rows, columns)
    _weave_floats(values, out.view(words), layout.row_block_bytes(columns) // values.itemsize)


@kernel
def _weave_plane(
    words: NDArray[np.uint32],
    row_words: int,
    bits: int,
    shift: int,
    out: NDArray[np.uint32],
    stride: int,
    start: int,
    record: int,
) -> None:
    """Weave some bits of 16 rows' codes.

    Args:
        words: [rows * row_words]: four codes each; rows are a multiple of 16.
        row_words: words of a row.
        bits: of each code that belong to the plane: 8, 4, 2 or 1.
        shift: the lowest of them.
        out: the packed tensor.
        stride: words from one row block to the next.
        start: word of the plane within 32 columns' codes.
        record: words from 32 columns' codes to the next.
    """
    mask = np.uint32((1 << bits) - 1) * np.uint32(0x01010101)
    vectors = bits  # 8 quads of `bits` bits in vectors of 8 bits
    for row in range(words.size // row_words):
        lane = row // ROWS * stride + start + row % ROWS
        for block in range(row_words // _QUADS):
            at, to = row * row_words + block * _QUADS, lane + block * record
            for v in range(vectors):
                word = np.uint32(0)
                for part in range(8 // bits):
                    # Nibbles pair quads j and j + 4; the others take quads that follow each other.
                    quad = v + 4 * part if bits == 4 else v * (8 // bits) + part
                    chosen = (words[at + quad] >> np.uint32(shift)) & mask
                    word |= chosen << np.uint32(bits * part)
                out[to + v * ROWS] = word


@kernel
def _weave_scales(
    scales: Bytes, row_bytes: int, halves: int, singles: int, out: Bytes, stride: int, start: int
) -> None:
    """Weave the scales of 16 rows: every float16, then every byte, of a quant block in turn.

    Args:
        scales: [rows * row_bytes]; rows are a multiple of 16.
        row_bytes: of a row.
        halves: float16 numbers of a quant block.
        singles: bytes of a quant block behind them.
        out: the packed tensor.
        stride: bytes from one row block to the next.
        start: byte of the first scale within a row block.
    """
    record = 2 * halves + singles
    for first in range(0, scales.size // row_bytes, ROWS):
        to = first // ROWS * stride + start
        for block in range(0, row_bytes, record):
            for half in range(halves):
                for row in range(first, first + ROWS):
                    at = row * row_bytes + block + 2 * half
                    out[to] = scales[at]
                    out[to + 1] = scales[at + 1]
                    to += 2
            for single in range(singles):
                for row in range(first, first + ROWS):
                    out[to] = scales[row * row_bytes + block + 2 * halves + single]
                    to += 1
        for i in range(to, (first // ROWS + 1) * stride):
            out[i] = 0


@kernel
def _weave_floats(values: NDArray[Any], out: NDArray[Any], stride: int) -> None:
    """Transpose 16 rows at a time: for each column one value of each row.

    Args:
        values: [rows, columns] unsigned integers that hold the floats' bits.
        out: the packed tensor as the same integers.
        stride: integers from one row block to the next.
    """
    rows, columns = values.shape
    for first in range(0, rows, ROWS):
        start = first // ROWS * stride
        for i in range(start, start + stride):
            out[i] = 0
        last = min(first + ROWS, rows)
        for column in range(columns):
            for row in range(first, last):
                out[start + column * ROWS + row - first] = values[row, column]

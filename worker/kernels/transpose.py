"""Turning the tiles that BLAS writes into rows."""

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel
from .vector import load8, store8, transposed_8


def scatter_tile(
    tile: NDArray[np.float32], out: NDArray[np.float32], first_row: int, first_column: int
) -> None:
    """Write a tile's leading columns as rows of `out`.

    out[first_row + j, first_column + i] = tile[i, j] for all i and for the j that fit into `out`.

    Args:
        tile: [rows, width] float32, C-contiguous; width is at most the rows left plus padding.
        out: [tokens, columns] float32, C-contiguous.
        first_row: row of `out` that tile column 0 goes to.
        first_column: column of `out` that tile row 0 goes to.
    """
    rows, width = tile.shape
    tokens, columns = out.shape
    assert 0 <= first_row < tokens, (first_row, tokens)
    assert 0 <= first_column <= columns - rows, (first_column, rows, columns)
    count = min(width, tokens - first_row)
    start = first_row * columns + first_column
    _scatter_tile(flat(tile), flat(out), rows, width, count, start, columns)


@kernel
def _scatter_tile(
    tile: NDArray[np.float32],
    out: NDArray[np.float32],
    rows: int,
    width: int,
    count: int,
    start: int,
    stride: int,
) -> None:
    """Shapes: tile [rows * width]; tile row i, column j goes to out[start + j * stride + i]."""
    for j in range(0, count, 8):
        wide = min(8, count - j)
        for i in range(0, rows, 8):
            high = min(8, rows - i)
            if wide == 8 and high == 8:
                _square(tile, i * width + j, width, out, start + j * stride + i, stride)
            else:
                for jj in range(j, j + wide):
                    for ii in range(i, i + high):
                        out[start + jj * stride + ii] = tile[ii * width + jj]


@kernel
def _square(
    tile: NDArray[np.float32], a: int, width: int, out: NDArray[np.float32], b: int, stride: int
) -> None:
    """Transpose the 8 x 8 values at tile[a] into out[b]."""
    columns = transposed_8(
        load8(tile, a),
        load8(tile, a + width),
        load8(tile, a + 2 * width),
        load8(tile, a + 3 * width),
        load8(tile, a + 4 * width),
        load8(tile, a + 5 * width),
        load8(tile, a + 6 * width),
        load8(tile, a + 7 * width),
    )
    store8(out, b, columns[0])
    store8(out, b + stride, columns[1])
    store8(out, b + 2 * stride, columns[2])
    store8(out, b + 3 * stride, columns[3])
    store8(out, b + 4 * stride, columns[4])
    store8(out, b + 5 * stride, columns[5])
    store8(out, b + 6 * stride, columns[6])
    store8(out, b + 7 * stride, columns[7])

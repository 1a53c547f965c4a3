"""Scattering BLAS tiles into rows."""

import numpy as np
import pytest

from worker.kernels.transpose import scatter_tile


@pytest.mark.parametrize("rows", [1, 8, 21, 48])
@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("tokens", [3, 16, 40])
def test_tile_columns_become_rows(rows, width, tokens):
    """Columns past the last token are padding and dropped; other places keep their values."""
    tile = np.random.default_rng(rows).standard_normal((rows, width), np.float32)
    first_row = tokens // width * width if tokens % width else tokens - width
    out = np.full((tokens, rows + 9), 7, np.float32)
    expected = out.copy()
    count = min(width, tokens - first_row)
    expected[first_row : first_row + count, 5 : 5 + rows] = tile.T[:count]
    scatter_tile(tile, out, first_row, 5)
    assert np.array_equal(expected, out)


def test_an_array_with_gaps_is_refused():
    """A copy made by reshaping would be written to in vain."""
    out = np.zeros((4, 16), np.float32)[:, ::2]
    with pytest.raises(AssertionError, match="not contiguous"):
        scatter_tile(np.zeros((8, 4), np.float32), out, 0, 0)

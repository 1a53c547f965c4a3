"""The norm kernel against its naive twin."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import rms_norm


@pytest.mark.parametrize("width", [1, 7, 8, 16, 20, 64, 576])
def test_rows_equal_the_naive_norm(width):
    """Whole vectors, rests and short rows are all normalised by their own mean."""
    random = np.random.default_rng(width)
    x = random.standard_normal((5, width), np.float32) * 3
    weight = random.standard_normal(width, np.float32)
    out = np.empty_like(x)
    rms_norm(x, weight, out, 1e-5)
    np.testing.assert_allclose(naive.rms_norm(x, weight, 1e-5), out, rtol=2e-6, atol=1e-7)


def test_heads_are_normalised_one_by_one_and_other_columns_kept():
    """Two heads from column 3 on, in place; the columns around them do not change."""
    random = np.random.default_rng(1)
    x = random.standard_normal((4, 3 + 2 * 12 + 5), np.float32)
    weight = random.standard_normal(12, np.float32)
    before = x.copy()
    rms_norm(x, weight, x, 1e-6, first_column=3, vectors=2)
    expected = naive.rms_norm(before[:, 3:27].reshape(4, 2, 12), weight, 1e-6)
    np.testing.assert_allclose(expected.reshape(4, 24), x[:, 3:27], rtol=2e-6, atol=1e-7)
    assert np.array_equal(before[:, :3], x[:, :3])
    assert np.array_equal(before[:, 27:], x[:, 27:])


def test_a_row_has_the_same_bits_beside_any_rows():
    """The sum of a row does not depend on its place in the batch."""
    random = np.random.default_rng(2)
    x = random.standard_normal((9, 100), np.float32)
    weight = random.standard_normal(100, np.float32)
    together, alone = np.empty_like(x), np.empty((1, 100), np.float32)
    rms_norm(x, weight, together, 1e-5)
    for row in range(9):
        rms_norm(x[row : row + 1], weight, alone, 1e-5)
        assert np.array_equal(together[row], alone[0])


def test_nan_stays_nan():
    """A NaN reaches the output, where the sampler can see it."""
    x = np.ones((1, 16), np.float32)
    x[0, 3] = np.nan
    out = np.empty_like(x)
    rms_norm(x, np.ones(16, np.float32), out, 1e-5)
    assert np.isnan(out).all()


def test_float64_is_refused():
    """A promoted array stops at the kernel instead of slowing everything after it."""
    x = np.ones((2, 8))
    with pytest.raises(AssertionError, match="float64 where float32 was expected"):
        rms_norm(x, np.ones(8, np.float32), x, 1e-5)


@pytest.mark.parametrize("size", [1e20, -3e38])
def test_squares_that_overflow_give_nan(size):
    """Not zeros, which would look like a sound result."""
    x = np.ones((2, 20), np.float32)
    x[1, 17] = size
    out = np.empty_like(x)
    rms_norm(x, np.ones(20, np.float32), out, 1e-5)
    assert np.isfinite(out[0]).all()
    assert np.isnan(out[1]).all()

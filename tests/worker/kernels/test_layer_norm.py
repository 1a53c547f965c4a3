"""The layer norm kernel against its naive twin."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import layer_norm


def _random(width, rows=5):
    random = np.random.default_rng(width)
    x = random.standard_normal((rows, width), np.float32) * 3 + 2
    weight, bias = random.standard_normal((2, width), np.float32)
    return x, weight, bias


@pytest.mark.parametrize("width", [2, 7, 8, 16, 20, 64, 576])
@pytest.mark.parametrize("has_bias", [True, False])
def test_rows_equal_the_naive_norm(width, has_bias):
    """Whole vectors, rests and short rows, each about its own mean, with and without a bias."""
    x, weight, bias = _random(width)
    out = np.empty_like(x)
    layer_norm(x, weight, bias if has_bias else None, out, 1e-5)
    expected = naive.layer_norm(x, weight, bias if has_bias else 0, 1e-5)
    np.testing.assert_allclose(expected, out, rtol=4e-6, atol=2e-6)


def test_a_row_may_be_normalised_in_place():
    """The same bits as into other memory."""
    x, weight, bias = _random(100)
    out = np.empty_like(x)
    layer_norm(x, weight, bias, out, 1e-5)
    layer_norm(x, weight, bias, x, 1e-5)
    assert np.array_equal(out, x)


def test_a_row_has_the_same_bits_beside_any_rows():
    """The sums of a row do not depend on its place in the batch."""
    x, weight, bias = _random(100, rows=9)
    together, alone = np.empty_like(x), np.empty((1, 100), np.float32)
    layer_norm(x, weight, bias, together, 1e-5)
    for row in range(9):
        layer_norm(x[row : row + 1], weight, bias, alone, 1e-5)
        assert np.array_equal(together[row], alone[0])


def test_equal_values_become_the_bias():
    """No deviation is no division by zero."""
    x, weight, bias = np.full((1, 12), 7, np.float32), *np.ones((2, 12), np.float32)
    layer_norm(x, weight, bias, x, 1e-5)
    assert np.array_equal(bias, x[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_is_no_number_or_overflows_is_nan(value):
    """It reaches the output, where the sampler can see it."""
    x = np.ones((1, 16), np.float32)
    x[0, 3] = value
    layer_norm(x, np.ones(16, np.float32), None, x, 1e-5)
    assert np.isnan(x).all()

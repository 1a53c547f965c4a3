"""The compiled matrix product: its values, its columns and its order of summation."""

import numpy as np
import pytest

from worker.kernels.matmul import matmul


@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (5, 8), (33, 20), (64, 96), (7, 577)])
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_product_equals_float64(outputs, inputs, tokens):
    """Rows, tokens and inputs that are no multiples of anything."""
    random = np.random.default_rng(outputs)
    weight = random.standard_normal((outputs, inputs), np.float32)
    x = random.standard_normal((tokens, inputs), np.float32)
    out = np.empty((tokens, outputs), np.float32)
    matmul(weight, x, out, 0, outputs)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(expected, out, atol=1e-5 * inputs**0.5)


def test_only_the_columns_named_are_written():
    """Rows 3 to 8 of the weight, into columns 10 + 3 to 10 + 8."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((12, 16), np.float32)
    x = random.standard_normal((3, 16), np.float32)
    out = np.full((3, 30), 7, np.float32)
    matmul(weight, x, out, 3, 8, first_column=10)
    np.testing.assert_allclose(x @ weight[3:8].T, out[:, 13:18], atol=1e-5)
    assert (out[:, :13] == 7).all()
    assert (out[:, 18:] == 7).all()


def test_a_row_has_the_same_bits_at_every_place_and_in_every_cut():
    """Alone, in any batch and with columns cut anywhere."""
    random = np.random.default_rng(1)
    weight = random.standard_normal((13, 100), np.float32)
    x = random.standard_normal((7, 100), np.float32)
    whole, cut = np.empty((7, 13), np.float32), np.empty((7, 13), np.float32)
    matmul(weight, x, whole, 0, 13)
    for first, last in [(0, 5), (5, 6), (6, 13)]:
        matmul(weight, x, cut, first, last)
    assert np.array_equal(whole, cut)
    for row in range(7):
        alone = np.empty((1, 13), np.float32)
        matmul(weight, x[row : row + 1], alone, 0, 13)
        assert np.array_equal(whole[row], alone[0])

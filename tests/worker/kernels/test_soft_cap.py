"""The soft cap against NumPy's tanh."""

import numpy as np

from tests.worker.kernels.array_kernels import soft_cap


def test_values_equal_the_scaled_tanh_of_numpy():
    """Across the linear range and both flat ends, whole vectors and a rest."""
    x = np.linspace(-400, 400, 1003).astype(np.float32)
    expected = 30 * np.tanh(x.astype(np.float64) / 30)
    soft_cap(x, 30.0)
    np.testing.assert_allclose(expected, x, atol=1e-5)


def test_nan_stays_nan():
    """NaN logits must reach the sampler."""
    x = np.array([np.nan, 1.0], np.float32)
    soft_cap(x, 30.0)
    assert np.isnan(x[0])


def test_infinity_becomes_nan():
    """A number that overflowed must reach the sampler; the largest that did not is capped."""
    x = np.array([np.inf, -np.inf, 3e38, -3e38], np.float32)
    soft_cap(x, 30.0)
    assert np.isnan(x[:2]).all()
    assert [30.0, -30.0] == x[2:].tolist()

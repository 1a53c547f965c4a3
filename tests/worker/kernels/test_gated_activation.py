"""The gated activations against their naive twins."""

import numpy as np
import pytest

from tests.worker.kernels import naive
from tests.worker.kernels.array_kernels import activate, gated_activation


@pytest.mark.parametrize("width", [1, 8, 13, 96])
@pytest.mark.parametrize(("name", "twin"), [("silu", naive.silu), ("gelu_tanh", naive.gelu_tanh)])
def test_gate_and_up_equal_the_naive_activation(name, twin, width):
    """Over the range where activations bend, and where they are flat."""
    random = np.random.default_rng(width)
    gate_up = random.uniform(-12, 12, (7, 2 * width)).astype(np.float32)
    out = np.empty((7, width), np.float32)
    gated_activation(gate_up, out, name)
    expected = twin(gate_up[:, :width]) * gate_up[:, width:]
    np.testing.assert_allclose(expected, out, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_extreme_gates_are_finite_and_nan_stays(name):
    """Far left gives 0, far right the value itself; NaN is not swallowed."""
    gate = np.array([-1000.0, -90.0, 0.0, 90.0, 1000.0, np.nan, 1e-30, -1e-30], np.float32)
    gate_up = np.concatenate([gate, np.ones(8, np.float32)])[None]
    out = np.empty((1, 8), np.float32)
    gated_activation(gate_up, out, name)
    expected = np.array([0, 0, 0, 90, 1000, np.nan, 5e-31, -5e-31], np.float32)
    np.testing.assert_allclose(expected, out[0], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("width", [1, 8, 13, 96])
@pytest.mark.parametrize(("name", "twin"), [("silu", naive.silu), ("gelu_tanh", naive.gelu_tanh)])
def test_an_activation_without_a_gate_equals_the_naive_one(name, twin, width):
    """In place as well."""
    x = np.random.default_rng(width).uniform(-12, 12, (7, width)).astype(np.float32)
    expected = twin(x)
    activate(x, x, name)
    np.testing.assert_allclose(expected, x, rtol=2e-6, atol=2e-6)

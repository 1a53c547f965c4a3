"""The clamps of gate and up, against NumPy."""

import numpy as np
import pytest

from worker.kernels.clamp_task import clamp_gate_up


@pytest.mark.parametrize("width", [1, 8, 13, 32])
def test_gate_and_up_are_clamped(width):
    """The gate from above alone, up on both sides and raised by 1; NaN stays."""
    random = np.random.default_rng(width)
    gate, up = 10 * random.standard_normal((2, width), np.float32)
    gate[0], up[-1] = np.nan, np.nan
    with np.errstate(invalid="ignore"):
        expected = np.minimum(gate, np.float32(7)), np.clip(up, -7, 7).astype(np.float32) + 1
    clamp_gate_up(gate, up, np.float32(7))
    np.testing.assert_array_equal(expected, (gate, up))

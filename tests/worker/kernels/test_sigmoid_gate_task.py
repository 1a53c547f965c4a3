"""Rows scaled by a sigmoid, against NumPy."""

import numpy as np
import pytest

from tests.worker.kernels.array_kernels import run_items
from worker.kernels.native import address_of
from worker.kernels.sigmoid_gate_task import sigmoid_gate_task


@pytest.mark.parametrize("width", [1, 8, 13, 32])
def test_rows_are_scaled_in_place(width):
    """By gates that stand in wider rows; large ones are 0 and 1."""
    random = np.random.default_rng(width)
    x = random.standard_normal((5, width), np.float32)
    gates = 5 * random.standard_normal((5, width + 3), np.float32)
    gates[0, 3], gates[1, 3] = 100, -120
    expected = x / (1 + np.exp(-gates[:, 3:].astype(np.float64)))
    header = np.array([5, 2], np.int64)
    words = [
        *(address_of(x), x.strides[0], address_of(gates) + 4 * 3, gates.strides[0], width),
        *(0, 1),
    ]
    arguments = np.array(words, np.int64)
    run_items(sigmoid_gate_task.address, address_of(header), address_of(arguments), 0, 3)
    np.testing.assert_allclose(expected, x, rtol=1e-6, atol=1e-30)

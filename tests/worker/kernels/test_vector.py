"""The eight-lane vectors: exp, and the trees that sum lanes."""

import numpy as np
import pytest

from worker.kernels.jit import kernel
from worker.kernels.vector import (
    exp8,
    greatest8,
    load8,
    load_part,
    store8,
    store_part,
    sum8,
    sums_of_8,
    transposed_8,
    upper_half,
)


@kernel
def _exp(x, out):
    for i in range(0, x.size, 8):
        store8(out, i, exp8(load8(x, i)))


@kernel
def _lanes(x, out):
    v = load8(x, 0)
    out[0] = sum8(v)
    out[1] = greatest8(v)
    store_part(out, 16, 3, load_part(x, 0, 2))
    store8(out, 24, upper_half(v))


@kernel
def _square(x, out):
    a = (load8(x, 0), load8(x, 8), load8(x, 16), load8(x, 24))
    b = (load8(x, 32), load8(x, 40), load8(x, 48), load8(x, 56))
    store8(out, 64, sums_of_8(a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]))
    r = transposed_8(a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3])
    store8(out, 0, r[0])
    store8(out, 8, r[1])
    store8(out, 16, r[2])
    store8(out, 24, r[3])
    store8(out, 32, r[4])
    store8(out, 40, r[5])
    store8(out, 48, r[6])
    store8(out, 56, r[7])


def test_exp_is_within_two_units_of_the_last_place():
    """Over the whole range of float32, subnormal results included."""
    x = np.linspace(-105, 89, 80_000).astype(np.float32)
    out = np.empty_like(x)
    _exp(x, out)
    with np.errstate(all="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    distance = np.abs(expected.view(np.int32).astype(np.int64) - out.view(np.int32))
    assert distance.max() <= 2


@pytest.mark.parametrize(
    ("x", "expected"), [(np.nan, np.nan), (np.inf, np.inf), (-np.inf, 0.0), (0.0, 1.0), (-0.0, 1.0)]
)
def test_exp_of_special_values(x, expected):
    """NaN stays NaN; the ends of the number line go where they belong."""
    values = np.full(8, x, np.float32)
    _exp(values, values)
    assert np.array_equal(np.full(8, expected, np.float32), values, equal_nan=True)


def test_lane_operations():
    """Sum, maximum, partial load and store, and moving the upper half."""
    x = np.array([1, 2, 4, 8, 16, 32, 64, 128], np.float32)
    out = np.full(32, 7, np.float32)
    _lanes(x, out)
    assert [255, 128] == out[:2].tolist()
    assert [1, 2, 0, 7, 7, 7, 7, 7] == out[16:24].tolist()
    assert [16, 32, 64, 128] == out[24:28].tolist()


def test_eight_vectors_are_transposed_and_summed():
    """Row i of the square ends in column i, and lane i of the sums belongs to row i."""
    x = np.arange(64, dtype=np.float32)
    out = np.zeros(72, np.float32)
    _square(x, out)
    assert np.array_equal(x.reshape(8, 8).T, out[:64].reshape(8, 8))
    assert np.array_equal(x.reshape(8, 8).sum(1), out[64:])

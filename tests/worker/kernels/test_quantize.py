"""Quantisation of activations against its naive twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.kernels.quantize import QUANT_BLOCK, RECORD_BYTES, quantized, record_bytes


def fields(records):
    """Numbers d, s, h0, h1 [rows, blocks, 4] and q [rows, blocks, 32] of records."""
    split = records.reshape(len(records), -1, RECORD_BYTES)
    return split[..., :16].copy().view(np.float32), split[..., 16:].copy().view(np.int8)


def naive_block(x):
    """One block of 32 finite values: the numbers and the codes."""
    largest = np.abs(x).max()
    d = largest / np.float32(127)
    inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
    q = np.rint(x * inverse).astype(np.int32)
    halves = q[:16].sum().astype(np.float32), q[16:].sum().astype(np.float32)
    return (d, d * (halves[0] + halves[1]), *halves), q


@pytest.mark.parametrize("width", [32, 64, 576])
def test_records_equal_the_naive_twin(width):
    """Scale, codes and sums of every block are those of the description, bit for bit."""
    x = np.random.default_rng(width).standard_normal((5, width), np.float32) * 3
    numbers, codes = fields(quantized(x))
    for row in range(5):
        for block in range(width // QUANT_BLOCK):
            expected = naive_block(x[row, block * 32 : block * 32 + 32])
            assert np.array_equal(np.array(expected[0], np.float32), numbers[row, block])
            assert np.array_equal(expected[1], codes[row, block])


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=32, max_size=32)
)
def test_any_finite_block_stays_within_half_a_step(values):
    """Codes are within 127, and d * q is within half a step of the value."""
    x = np.array([values], np.float32)
    numbers, codes = fields(quantized(x))
    d = np.float64(numbers[0, 0, 0])
    assert np.abs(codes.astype(int)).max() <= 127
    if np.abs(x).max() >= 2.0**-90:
        error = np.abs(d * codes[0, 0] - x[0].astype(np.float64))
        assert error.max() <= d * 0.5001


def test_ties_go_to_the_even_integer():
    """With d = 1, halves round to even codes."""
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = 127, 0.5, 1.5, 2.5, -0.5, -1.5
    assert [127, 0, 2, 2, 0, -2] == fields(quantized(x))[1][0, 0, :6].tolist()


def test_zeros_give_zeros():
    """A block of zeros has scale 0 and no NaN."""
    assert not quantized(np.zeros((2, 64), np.float32)).any()


@pytest.mark.parametrize(
    ("largest", "is_kept"), [(2.0**-90, True), (2.0**-91, False), (1e-42, False)]
)
def test_blocks_of_next_to_nothing_become_zeros(largest, is_kept):
    """No scale is so small that its products with a weight's scale are subnormal."""
    x = np.full((1, 32), largest, np.float32)
    records = quantized(x)
    assert is_kept == records.any()
    smallest_weight_scale = np.float32(2.0**-24)
    d = fields(records)[0][0, 0, 0]
    assert d == 0 or d * smallest_weight_scale >= np.finfo(np.float32).tiny


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 16, 31])
def test_a_value_that_is_no_number_reaches_the_scale(bad, place):
    """NaN and infinity show in d of their block, and in no other block."""
    x = np.random.default_rng(0).standard_normal((1, 96), np.float32)
    x[0, 32 + place] = bad
    numbers, codes = fields(quantized(x))
    assert not np.isfinite(numbers[0, 1, 0])
    assert np.isfinite(numbers[0, [0, 2]]).all()
    assert np.abs(codes.astype(int)).max() <= 127


def test_a_width_that_is_no_whole_block_is_refused():
    """Records hold 32 values each."""
    with pytest.raises(AssertionError, match="40"):
        record_bytes(40)

"""Descriptions of packed tensors."""

import pytest
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as QType

from worker.kernels.layouts import layout_of

# Bytes of 16 rows' codes for 32 columns, bytes of their scales, columns that share scales.
EXPECTED = {
    "Q4_0": (256, 32, 32),
    "Q4_1": (256, 64, 32),
    "Q5_0": (320, 32, 32),
    "Q5_1": (320, 64, 32),
    "Q8_0": (512, 32, 32),
    "Q4_K": (256, 320, 256),
    "Q5_K": (320, 320, 256),
    "Q6_K": (384, 288, 256),
    "Q3_K": (192, 288, 256),
    "Q2_K": (128, 320, 256),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_records_have_the_bytes_that_kernels_expect(name):
    """The numbers that the matrix kernels are built for."""
    layout = layout_of(QType[name])
    found = layout.code_record_bytes, layout.scale_record_bytes, layout.block_columns
    assert EXPECTED[name] == found


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("columns", [256, 768, 4096])
def test_a_row_block_is_codes_and_scales_up_to_a_cache_line(name, columns):
    """Scales start behind all codes, the next row block at a multiple of 64 bytes."""
    code, scale, length = EXPECTED[name]
    layout = layout_of(QType[name])
    assert columns // 32 * code == layout.code_bytes(columns)
    needed = columns // 32 * code + columns // length * scale
    assert 0 <= layout.row_block_bytes(columns) - needed < 64
    assert layout.row_block_bytes(columns) % 64 == 0


@pytest.mark.parametrize(("name", "size"), [("F32", 4), ("F16", 2), ("BF16", 2)])
def test_floats_of_any_number_of_columns_have_a_layout(name, size):
    """Sixteen values a column and no scales."""
    layout = layout_of(QType[name])
    assert 16 * size == layout.code_record_bytes
    assert 0 == layout.scale_record_bytes
    assert (5 * 16 * size + 63) // 64 * 64 == layout.row_block_bytes(5)


def test_rows_are_counted_in_whole_row_blocks():
    """33 rows take three row blocks."""
    layout = layout_of(QType.Q8_0)
    assert 3 * layout.row_block_bytes(64) == layout.packed_bytes(33, 64)


@pytest.mark.parametrize("name", [*EXPECTED, "F32", "F16", "BF16"])
def test_packing_costs_less_than_a_twentieth(name):
    """The largest growth is that of Q3_K, 3.6 %."""
    n_values, n_bytes = GGML_QUANT_SIZES[QType[name]]
    stored = 64 * 1024 // n_values * n_bytes
    assert stored <= layout_of(QType[name]).packed_bytes(64, 1024) <= 1.05 * stored


def test_types_without_a_kernel_have_no_layout():
    """They are dequantised instead."""
    assert layout_of(QType.IQ4_XS) is None

"""Packing, bit for bit: what a naive reader of packed tensors finds is what the file says."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as QType

from tests.worker.kernels import naive_pack
from worker.gguf import GGUFFile
from worker.gguf.quant_types import row_bytes
from worker.kernels.layouts import layout_of
from worker.kernels.pack import pack_rows

NAMES = sorted(naive_pack.LAYOUTS)
FLOATS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
# Where the float16 scales of a quant block lie.
SCALES = {
    **{name: [0] for name in ("Q4_0", "Q5_0", "Q8_0")},
    **{name: [0, 2] for name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")},
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q6_K": [208],
}
# Zeros, the smallest and largest subnormal, ones, the largest value, infinities and NaNs.
SPECIAL_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF]
SPECIAL_HALVES += [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01]


def packed(raw, name, columns):
    """Pack rows into memory that holds other bytes before."""
    layout = layout_of(QType[name])
    out = np.full(layout.packed_bytes(len(raw), columns), 0xAA, np.uint8)
    pack_rows(raw, layout, columns, out)
    return out


def random_rows(name, rows, columns, seed=0):
    """Any bytes are a valid row."""
    shape = rows, row_bytes(columns, QType[name])
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def theirs(raw, name):
    """The gguf package's values."""
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, QType[name])


def assert_same_bits(expected, found):
    """Equal bits everywhere, except that any NaN equals any NaN."""
    assert expected.shape == found.shape
    nan = np.isnan(expected)
    assert np.array_equal(nan, np.isnan(found))
    assert np.array_equal(expected.view(np.uint32)[~nan], found.view(np.uint32)[~nan])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (16, 512), (40, 768)])
def test_random_rows_keep_their_values(name, rows, columns):
    """Full and partial row blocks, one and more quant blocks."""
    raw = random_rows(name, rows, columns)
    found = naive_pack.values(packed(raw, name, columns), name, columns)
    assert_same_bits(theirs(raw, name), found[:rows])


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_rows_may_be_one_block_of_32_long(name):
    """The smallest matrix of the types with short quant blocks."""
    raw = random_rows(name, 17, 32)
    found = naive_pack.values(packed(raw, name, 32), name, 32)
    assert_same_bits(theirs(raw, name), found[:17])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x80, 0x7F])
def test_rows_of_extreme_codes_keep_them(name, byte):
    """The smallest and largest codes and scales, signs included."""
    raw = np.full((16, row_bytes(512, QType[name])), byte, np.uint8)
    found = naive_pack.values(packed(raw, name, 512), name, 512)
    assert_same_bits(theirs(raw, name), found)


@pytest.mark.parametrize("name", NAMES)
def test_special_scales_keep_their_bits(name):
    """Zero, subnormal, infinite and NaN scales, in every block and every combination."""
    pairs = [(a, b) for a in SPECIAL_HALVES for b in SPECIAL_HALVES]
    raw = random_rows(name, len(pairs), 256)
    blocks = raw.reshape(len(pairs), -1, gguf.GGML_QUANT_SIZES[QType[name]][1])
    for row, values in enumerate(pairs):
        for at, half in zip(SCALES[name], values, strict=False):
            blocks[row, :, at : at + 2] = np.array([half], dtype="<u2").view(np.uint8)
    _, halves, _ = naive_pack.fields(packed(raw, name, 256), name, 256)
    expected = np.array(pairs, np.uint16)[:, None, : len(SCALES[name])]
    found = halves.view(np.uint16)[: len(pairs)]
    assert np.array_equal(np.broadcast_to(expected, found.shape), found)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_fill_up_a_row_block_are_zero(name):
    """Codes, numbers and scales: such a row gives 0 whatever it is multiplied by."""
    raw = random_rows(name, 19, 256)
    for part in naive_pack.fields(packed(raw, name, 256), name, 256):
        assert len(part) == 32
        assert not part[19:].tobytes().strip(b"\0")


@pytest.mark.parametrize("name", NAMES)
def test_row_blocks_may_be_packed_one_by_one(name):
    """Threads each take a range of row blocks."""
    raw = random_rows(name, 40, 256)
    parts = [packed(raw[first : first + 16], name, 256) for first in range(0, 40, 16)]
    assert np.array_equal(packed(raw, name, 256), np.concatenate(parts))


@pytest.mark.parametrize("name", [*NAMES, *FLOATS])
def test_bytes_may_be_read_only_and_start_anywhere(name):
    """Tensors in a map are read-only, and need not lie at an address a CPU would choose."""
    raw = random_rows(name, 5, 256)
    shifted = np.zeros(raw.size + 1, dtype=np.uint8)
    shifted[1:] = raw.reshape(-1)
    view = shifted[1:].reshape(raw.shape)
    view.flags.writeable = False
    assert np.array_equal(packed(raw, name, 256), packed(view, name, 256))
    assert raw.flags.writeable


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (16, 33), (37, 100)])
def test_plain_floats_keep_their_bits(name, rows, columns):
    """Any number of columns; rows that fill up are zero."""
    raw = random_rows(name, rows, columns)
    found = naive_pack.float_values(packed(raw, name, columns), FLOATS[name], columns)
    assert np.array_equal(raw.view(FLOATS[name]), found[:rows])
    assert not found[rows:].any()


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_ggml_quantised_keep_their_values(data, name):
    """Recorded blocks, against the values that ggml reads from them."""
    blocks = np.load(data / "dequant/blocks.npz")
    raw, expected = blocks[f"{name}.raw"], blocks[f"{name}.f32"]
    found = naive_pack.values(packed(raw, name, expected.shape[1]), name, expected.shape[1])
    assert_same_bits(expected, found[: len(raw)])


@pytest.mark.parametrize("model", ["smollm2", "gemma3_270m"])
def test_tensors_of_a_real_model_keep_their_values(model, request):
    """The first tensor of every type and the last one, up to 1,000 rows."""
    file = GGUFFile.open(request.getfixturevalue(model))
    matrices = [info for info in file.tensors.values() if len(info.shape) == 2]
    chosen = {info.qtype: info for info in reversed(matrices)} | {None: matrices[-1]}
    for info in chosen.values():
        raw = file.raw(info.name)[:1000]
        found = naive_pack.values(
            packed(raw, info.qtype.name, info.columns), info.qtype.name, info.columns
        )
        assert_same_bits(theirs(raw, info.qtype.name), found[: len(raw)])

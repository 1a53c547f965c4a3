"""Dequantisation, bit for bit the values of two independent implementations."""

import re
import threading

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as QType
from numba import njit

from worker.errors import UnsupportedModelError
from worker.gguf import SUPPORTED_TYPES, dequantize
from worker.gguf.quant_types import row_bytes
from worker.kernels.dequantize import KERNELS
from worker.kernels.jit import JIT_OPTIONS

TYPES = sorted(SUPPORTED_TYPES)
# Where the float16 scales of a quant block lie.
SCALES = {
    **{QType[name]: [0] for name in ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "Q1_0")},
    **{QType[name]: [0] for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")},
    **{QType[name]: [0, 2] for name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")},
    QType.Q2_K: [80, 82],
    QType.Q3_K: [108],
    QType.Q6_K: [208],
    QType.TQ1_0: [52],
    QType.TQ2_0: [64],
}
# Zeros, the smallest and largest subnormal, ones, the largest value, infinities and NaNs.
SPECIAL_HALVES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF]
SPECIAL_HALVES += [0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01]
# Of x86 and arm64.
NON_TEMPORAL_STORE = r"\b(v?movntps|v?movntdq|v?movntpd|stnp)\b"


def _ours(raw, qtype, columns=512):
    out = np.full((raw.shape[0], columns), -1.0, dtype=np.float32)
    dequantize(raw, qtype, out)
    return out


def _theirs(raw, qtype):
    with np.errstate(all="ignore"):
        return _q1_0(raw) if qtype == QType.Q1_0 else gguf.quants.dequantize(raw, qtype)


def _q1_0(raw):
    """The type that the gguf package knows by size only, as ggml reads it."""
    blocks = raw.reshape(-1, 18)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return np.where(bits == 1, d, -d).reshape(len(raw), -1)


def assert_same_bits(expected, found):
    """Equal bits everywhere, except that any NaN equals any NaN."""
    assert expected.shape == found.shape
    nan = np.isnan(expected)
    assert np.array_equal(nan, np.isnan(found))
    assert np.array_equal(expected.view(np.uint32)[~nan], found.view(np.uint32)[~nan])


def _random_rows(qtype, rows, columns=512, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, row_bytes(columns, qtype)), dtype=np.uint8)


@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_random_bytes_give_the_values_of_the_gguf_package(qtype):
    """Any bytes are a valid quant block; 40 rows of at least two blocks each."""
    raw = _random_rows(qtype, 40)
    assert_same_bits(_theirs(raw, qtype), _ours(raw, qtype))


@pytest.mark.parametrize("qtype", sorted(SCALES), ids=lambda t: t.name)
def test_special_scales_give_the_values_of_the_gguf_package(qtype):
    """Zero, subnormal, infinite and NaN scales, in every block and every combination."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    pairs = [(a, b) for a in SPECIAL_HALVES for b in SPECIAL_HALVES]
    raw = _random_rows(qtype, len(pairs))
    blocks = raw.reshape(len(pairs), -1, block_bytes)
    for row, values in enumerate(pairs):
        for at, half in zip(SCALES[qtype], values, strict=False):
            blocks[row, :, at : at + 2] = np.array([half], dtype="<u2").view(np.uint8)
    assert_same_bits(_theirs(raw, qtype), _ours(raw, qtype))


@pytest.mark.parametrize("qtype", [QType.F16, QType.BF16], ids=lambda t: t.name)
def test_every_16_bit_pattern_is_converted_exactly(qtype):
    """All 65,536 values of the short floats."""
    raw = np.arange(65536, dtype="<u2").reshape(128, 512).view(np.uint8)
    assert_same_bits(_theirs(raw, qtype), _ours(raw, qtype))


@pytest.mark.parametrize("qtype", [QType.MXFP4, QType.NVFP4], ids=lambda t: t.name)
def test_every_scale_of_a_byte_is_read_exactly(qtype):
    """All 256 values, not-a-number and subnormals included, in every block."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    raw = _random_rows(qtype, 256)
    blocks = raw.reshape(256, -1, block_bytes)
    blocks[:, :, : 4 if qtype == QType.NVFP4 else 1] = np.arange(256)[:, None, None]
    assert_same_bits(_theirs(raw, qtype), _ours(raw, qtype))


def test_every_scale_of_iq1_m_is_read_exactly():
    """Its float16 lies in the nibbles of four words: all 65,536 values."""
    raw = _random_rows(QType.IQ1_M, 32768)
    scales = raw.reshape(-1, 56)[:, 48:].view("<u2")
    halves = np.arange(65536)
    for word in range(4):
        scales[:, word] = scales[:, word] & 0xFFF | (halves >> (4 * word) & 15) << 12
    assert_same_bits(_theirs(raw, QType.IQ1_M), _ours(raw, QType.IQ1_M))


@pytest.mark.parametrize(
    "name", sorted({t.name for t in TYPES} - {"F32", "F16", "BF16", "NVFP4", "Q1_0"})
)
def test_recorded_blocks_give_the_values_of_the_c_code(data, name):
    """Rows that ggml quantised become the values that ggml reads from them."""
    blocks = np.load(data / "dequant/blocks.npz")
    assert_same_bits(blocks[f"{name}.f32"], _ours(blocks[f"{name}.raw"], QType[name]))


@pytest.mark.parametrize("qtype", [QType.F32, QType.F16, QType.BF16], ids=lambda t: t.name)
@pytest.mark.parametrize("columns", [1, 2, 15, 17, 33])
def test_rows_of_plain_numbers_may_have_any_length(qtype, columns):
    """Lengths that are no multiple of a vector are finished one by one."""
    raw = _random_rows(qtype, 3, columns)
    assert_same_bits(_theirs(raw, qtype), _ours(raw, qtype, columns))


@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_ranges_of_rows_may_be_done_by_threads(qtype):
    """Rows split over four threads, into slices of one array, are the rows done at once."""
    raw = _random_rows(qtype, 64)
    out = np.zeros((64, 512), dtype=np.float32)
    ranges = [slice(start, start + 16) for start in range(0, 64, 16)]
    threads = [
        threading.Thread(target=dequantize, args=(raw[part], qtype, out[part])) for part in ranges
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same_bits(_ours(raw, qtype), out)


@pytest.mark.parametrize("skew", [0, 1, 4])
@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_streamed_values_are_the_same(qtype, skew):
    """Past the caches or not, at any address, and nothing beside them is written."""
    raw = _random_rows(qtype, 40)
    memory = np.full(40 * 512 + 64, 7.0, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + skew
    out = memory[start : start + 40 * 512].reshape(40, 512)
    dequantize(raw, qtype, out, stream=True)
    assert_same_bits(_ours(raw, qtype), out)
    assert {7.0} == {*memory[:start], *memory[start + 40 * 512 :]}


@pytest.mark.parametrize("columns", [1, 17, 33])
@pytest.mark.parametrize("qtype", [QType.F32, QType.F16, QType.BF16], ids=lambda t: t.name)
def test_rows_that_do_not_fill_lines_may_be_asked_to_be_streamed(qtype, columns):
    """Three rows of such a length are written as ever."""
    raw = _random_rows(qtype, 3, columns)
    out = np.zeros((3, columns), np.float32)
    dequantize(raw, qtype, out, stream=True)
    assert_same_bits(_ours(raw, qtype, columns), out)


def test_values_are_streamed_only_when_asked_for():
    """The assembly has non-temporal stores where they were asked for, and no others."""
    raw, out = _random_rows(QType.Q8_0, 1).reshape(-1), np.zeros(512, np.float32)
    compiled = njit(**JIT_OPTIONS)(KERNELS[QType.Q8_0].py_func)  # what is cached has no assembly
    compiled(raw, out)
    compiled(raw, out.reshape(-1, 16))
    streams = {
        types[1].ndim: re.search(NON_TEMPORAL_STORE, code) is not None
        for types, code in compiled.inspect_asm().items()
    }
    assert {1: False, 2: True} == streams


@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_nothing_but_the_rows_given_is_written(qtype):
    """The rows above and below a slice keep their values."""
    raw = _random_rows(qtype, 2)
    out = np.full((4, 512), 7.0, dtype=np.float32)
    dequantize(raw, qtype, out[1:3])
    assert [7.0] * 1024 == [*out[0], *out[3]]


@pytest.mark.parametrize("qtype", TYPES, ids=lambda t: t.name)
def test_bytes_may_be_read_only_and_start_anywhere(qtype):
    """Tensors in a map are read-only, and need not lie at an address a CPU would choose."""
    raw = _random_rows(qtype, 2)
    shifted = np.zeros(raw.size + 1, dtype=np.uint8)
    shifted[1:] = raw.reshape(-1)
    view = shifted[1:].reshape(raw.shape)
    view.flags.writeable = False
    assert_same_bits(_theirs(raw, qtype), _ours(view, qtype))
    assert raw.flags.writeable


def test_no_rows_are_no_work():
    """An empty range of rows is allowed: threads may outnumber rows."""
    out = np.zeros((0, 512), dtype=np.float32)
    dequantize(np.zeros((0, row_bytes(512, QType.Q4_K)), dtype=np.uint8), QType.Q4_K, out)


def test_every_supported_type_has_a_kernel():
    """The list for the user and the table of kernels agree."""
    assert SUPPORTED_TYPES == set(KERNELS)


def test_other_types_are_refused():
    """The message lists what is supported."""
    with pytest.raises(UnsupportedModelError, match=r"Q8_K cannot be dequantised.*Q4_K"):
        dequantize(np.zeros((1, 292), np.uint8), QType.Q8_K, np.zeros((1, 256), np.float32))


@pytest.mark.parametrize(
    ("raw_shape", "out_shape"), [((2, 35), (2, 32)), ((3, 34), (2, 32)), ((2, 34), (2, 64))]
)
def test_arrays_that_do_not_fit_are_refused(raw_shape, out_shape):
    """The kernels trust sizes, so the wrapper must not."""
    with pytest.raises(ValueError, match="does not hold Q8_0 values"):
        dequantize(np.zeros(raw_shape, np.uint8), QType.Q8_0, np.zeros(out_shape, np.float32))


def test_arrays_that_are_not_contiguous_are_refused():
    """A copy made by accident would never reach the caller's array."""
    raw, wide = np.zeros((2, 34), np.uint8), np.zeros((2, 64), np.float32)
    with pytest.raises(ValueError, match="C-contiguous"):
        dequantize(raw, QType.Q8_0, wide[:, :32])

"""Tiles: the same bits as the naive twin, with any instruction set and number of columns."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as QType

from worker.kernels.feature_probe import INSTRUCTION_SETS, available_instruction_sets
from worker.kernels.native import address_of
from worker.kernels.tile import tiles

from . import naive_tiles

ISAS = {isa.name: isa for isa in available_instruction_sets()}
QUANTS = sorted(naive_tiles.KINDS)
FLOATS = ("F16", "BF16", "F32")
COLUMNS = (1, 2, 4, 8)


def on_a_cache_line(array):
    """Copy the bytes of an array to where a packed file would have them."""
    raw = np.ascontiguousarray(array).view(np.uint8).ravel()
    room = np.zeros(raw.size + 64, np.uint8)
    aligned = room[-room.ctypes.data % 64 :][: raw.size]
    aligned[:] = raw
    return aligned


def run(name, isa, columns, weights, x, blocks):
    """Outputs [columns, 16] of a tile for x with a row a token; nothing else is written."""
    weights = on_a_cache_line(weights)
    out = np.full((columns + 1, 20), 7, np.float32)
    tile = tiles(QType[name], ISAS[isa])[columns]
    tile(address_of(weights), address_of(x), x.strides[0], address_of(out), 80, blocks)
    assert (out[:columns, 16:] == 7).all()
    assert (out[columns] == 7).all()
    return out[:columns, :16]


def assert_same_bits(expected, found):
    """Equal bits, except that any NaN equals any NaN: CPUs differ in its sign."""
    nan = np.isnan(expected)
    assert np.array_equal(nan, np.isnan(found))
    assert np.array_equal(expected.view(np.uint32)[~nan], found.view(np.uint32)[~nan])


def random_weights(name, columns, rng):
    """Sixteen rows of codes and scales of all sizes that a file can have."""
    _, n_halves, n_bytes, length = naive_tiles.KINDS[name]
    codes = rng.integers(0, naive_tiles.largest_code(name) + 1, (16, columns))
    codes = codes.astype(np.int8 if name == "Q8_0" else np.uint8)
    numbers = rng.integers(-2048, 2049, (16, columns // length, n_halves)) / 2048
    scales = rng.integers(0, 256, (16, columns // length, n_bytes), dtype=np.uint8)
    return naive_tiles.Weights(name, codes, numbers.astype(np.float16), scales)


def random_activations(tokens, columns, rng):
    """Scales d [tokens, columns / 32] and values q [tokens, columns]."""
    d = rng.integers(1, 1 << 24, (tokens, columns // 32)).astype(np.float32) / (1 << 28)
    return d, rng.integers(-127, 128, (tokens, columns))


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("isa", ISAS)
def test_random_weights(isa, name, columns):
    """Two quant blocks of everything a type can hold."""
    rng = np.random.default_rng(1)
    weights = random_weights(name, 512, rng)
    d, q = random_activations(columns, 512, rng)
    found = run(name, isa, columns, naive_tiles.packed(weights), naive_tiles.records(d, q), 16)
    assert_same_bits(naive_tiles.product(weights, d, q), found)


def check(isa, weights, d, q):
    """A tile of every width gives the twin's bits."""
    packed, blocks = naive_tiles.packed(weights), q.shape[1] // 32
    expected = naive_tiles.product(weights, d, q)
    for columns in COLUMNS:
        x = naive_tiles.records(d[:columns], q[:columns])
        assert_same_bits(expected[:columns], run(weights.name, isa, columns, packed, x, blocks))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("isa", ISAS)
def test_largest_codes_and_activations(isa, name, sign):
    """No sum overflows: rows of the smallest and the largest code, scales -128, 127 and 255."""
    _, n_halves, n_bytes, length = naive_tiles.KINDS[name]
    smallest, largest = (-128, 127) if name == "Q8_0" else (0, naive_tiles.largest_code(name))
    codes = np.full((16, length), largest, np.int16)
    codes[::2] = smallest
    scales = np.full((16, 1, n_bytes), 0x80, np.uint8)
    scales[:4], scales[4:8] = 0x7F, 0xFF
    numbers = np.ones((16, 1, n_halves), np.float16)
    weights = naive_tiles.Weights(name, codes, numbers, scales)
    d, q = np.ones((8, length // 32), np.float32), np.full((8, length), sign * 127)
    q[1, ::2] *= -1
    q[2, 16:] *= -1
    check(isa, weights, d, q)


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("isa", ISAS)
def test_odd_scales(isa, name):
    """Zero, subnormal, largest, infinite and NaN scales stay in their rows and columns."""
    rng = np.random.default_rng(3)
    weights = random_weights(name, 512, rng)
    specials = [0.0, -0.0, 2.0**-24, -(2.0**-15), 65504, -65504, np.inf, -np.inf, np.nan]
    weights.numbers[: len(specials), 0, 0] = specials
    weights.numbers[: len(specials), 1, -1] = specials[::-1]
    d, q = random_activations(8, 512, rng)
    d[1:7, 3] = [0, 1e-45, 1e-38, 3e38, np.inf, np.nan]
    q[1, 96:128] = 0
    check(isa, weights, d, q)


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("isa", ISAS)
def test_one_and_many_blocks(isa, name):
    """From one quant block to more columns than any model has."""
    length = naive_tiles.KINDS[name][3]
    for columns in (length, 3 * length, 16384):
        rng = np.random.default_rng(columns)
        check(isa, random_weights(name, columns, rng), *random_activations(8, columns, rng))


def random_floats(name, columns, rng):
    """Sixteen rows [16, columns] of floats as stored, and their values."""
    values = rng.standard_normal((16, columns)).astype(np.float32)
    if name == "F32":
        return values, values
    if name == "F16":
        return values.astype(np.float16), values.astype(np.float16).astype(np.float32)
    stored = (values.view(np.uint32) >> 16).astype(np.uint16)
    return stored, (stored.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("isa", ISAS)
def test_random_floats(isa, name, columns):
    """Any number of columns of the weight will do."""
    rng = np.random.default_rng(2)
    stored, values = random_floats(name, 37, rng)
    x = rng.standard_normal((columns, 37)).astype(np.float32)
    found = run(name, isa, columns, stored.T, x, 37)
    assert_same_bits(naive_tiles.float_product(values, x), found)


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("isa", ISAS)
def test_odd_floats(isa, name):
    """Subnormal, largest, infinite and NaN weights and activations; a single column."""
    specials = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0x7E01, 0x7C01])
    halves = np.resize(specials, 16).astype(np.uint16)[:, None]
    stored, values = {
        "F16": lambda: (halves, halves.view(np.float16).astype(np.float32)),
        "BF16": lambda: (halves, (halves.astype(np.uint32) << 16).view(np.float32)),
        "F32": lambda: ((halves.astype(np.uint32) << 16).view(np.float32),) * 2,
    }[name]()
    x = np.array([[1.0], [-1.5], [1e-45], [3e38], [np.inf], [np.nan], [0.0], [-0.0]], np.float32)
    for columns in COLUMNS:
        expected = naive_tiles.float_product(values, x[:columns])
        assert_same_bits(expected, run(name, isa, columns, stored.T, x, 1))


def test_tiles_that_the_cpu_cannot_run_are_refused():
    """They would end the process when they are compiled."""
    foreign = next(isa for name, isa in INSTRUCTION_SETS.items() if name not in ISAS)
    with pytest.raises(ValueError, match=f"tiles for {foreign.name} cannot run on this CPU"):
        tiles(QType.Q4_0, foreign)

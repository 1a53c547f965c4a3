"""Tiles: the same bits as the naive twin, with any instruction set and number of columns."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType as QType

from worker.kernels.feature_probe import available_instruction_sets
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

"""The sliding dequant cache: values, bounds, hit rates, and pages given back."""

import math

import gguf
import numpy as np
import pytest

from worker.dequant_cache import DequantCache, TensorRows, WeightMatrix, WeightUnit
from worker.errors import EngineConfigError
from worker.gguf import GGUFFile
from worker.stages import Stages
from worker.thread_team import ThreadTeam


@pytest.fixture(scope="module")
def team():
    """Two threads."""
    with ThreadTeam(2) as team:
        yield team


@pytest.fixture
def file(data):
    """A tiny llama with 2 layers."""
    return GGUFFile.open(data / "tiny" / "llama" / "llama-Q8_0.gguf")


def _unit(number, rows=16):
    """Part of the embedding, as a unit of rows * 64 values."""
    source = TensorRows("token_embd.weight", number * rows, (number + 1) * rows)
    return WeightUnit(f"unit {number}", (WeightMatrix((source,), 64),))


def _cycle(cache, times=1):
    """Visit all units in order, checking values and invariants."""
    for _ in range(times):
        cache.begin_step()
        for number in range(len(cache.units)):
            cache.matrix(number, 0)
            cache.check_invariants()


def _expected(file, unit):
    (source,) = unit.matrices[0].sources
    info = file.tensors[source.name]
    values = gguf.quants.dequantize(file.raw(source.name), info.qtype)
    return values[source.first : source.last]


@pytest.mark.parametrize("bound", [{}, {"max_units": 5}, {"max_units": 2}, {"max_bytes": 1 << 14}])
def test_values_are_the_same_under_any_bound(file, team, bound):
    """Pinned or sliding, first visit or tenth: the file's values, bit for bit."""
    cache = DequantCache(file, [_unit(i) for i in range(10)], team, Stages(), **bound)
    for _ in range(3):
        cache.begin_step()
        for number, unit in enumerate(cache.units):
            assert np.array_equal(_expected(file, unit), cache.matrix(number, 0))
            cache.check_invariants()


@pytest.mark.parametrize("window", [2, 3, 5, 9, 10, 11])
def test_hit_rate_meets_the_formula(file, team, window):
    """With room for n of u units, steady state hits at least (n - 2) / u, or all when n >= u."""
    cache = DequantCache(file, [_unit(i) for i in range(10)], team, Stages(), max_units=window)
    _cycle(cache)
    first = cache.stats()
    _cycle(cache, 4)
    stats = cache.stats()
    hits, visits = stats.hits - first.hits, 4 * 10
    assert hits / visits >= (1.0 if window >= 10 else (window - 2) / 10)
    assert stats.hits + stats.misses == 5 * 10


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_bytes_stay_under_the_bound(file, team, share):
    """Peak and reserved bytes, with units of different sizes."""
    units = [_unit(0, 16), _unit(1, 48), _unit(1, 32), _unit(5, 16), _unit(2, 48), _unit(9, 16)]
    total = sum(unit.n_bytes for unit in units)
    bound = max(int(total * share), 2 * max(unit.n_bytes for unit in units))
    cache = DequantCache(file, units, team, Stages(), max_bytes=bound)
    _cycle(cache, 3)
    stats = cache.stats()
    assert stats.peak_bytes <= stats.reserved_bytes <= bound
    assert (share == 1.0) == (stats.evictions == 0)


@pytest.mark.parametrize("bound", [{"max_units": 1}, {"max_bytes": 8191}])
def test_a_bound_without_room_for_the_ring_names_the_least(file, team, bound):
    """Two buffers of the largest unit are needed."""
    units = [_unit(i) for i in range(4)]
    least = "2" if "max_units" in bound else str(2 * units[0].n_bytes)
    with pytest.raises(EngineConfigError, match=f"at least {least}$"):
        DequantCache(file, units, team, Stages(), **bound)


def test_the_exact_minimum_works(file, team):
    """Two buffers and nothing pinned: every visit misses, and the values are right."""
    units = [_unit(i) for i in range(4)]
    cache = DequantCache(file, units, team, Stages(), max_bytes=2 * units[0].n_bytes)
    _cycle(cache, 3)
    assert (0, 12, 10) == (cache.stats().hits, cache.stats().misses, cache.stats().evictions)


def test_the_ring_keeps_the_unit_before(file, team):
    """Two buffers: while a unit is filled, the one visited before it stays readable."""
    units = [_unit(i) for i in range(4)]
    cache = DequantCache(file, units, team, Stages(), max_units=2)
    before = cache.matrix(0, 0)
    for number in range(1, 4):
        now = cache.matrix(number, 0)
        assert np.array_equal(_expected(file, units[number - 1]), before)
        before = now


def test_stacked_tensors_share_one_buffer(file, team):
    """Query, key and value rows of one matrix lie one below the other, at one address for good."""
    names = [f"blk.0.attn_{part}.weight" for part in "qkv"]
    rows = [file.tensors[name].shape[0] for name in names]
    sources = tuple(TensorRows(n, 0, r) for n, r in zip(names, rows, strict=True))
    unit = WeightUnit("layer", (WeightMatrix(sources, 64),))
    cache = DequantCache(file, [unit, _unit(0)], team, Stages())
    values = cache.matrix(0, 0)
    expected = [gguf.quants.dequantize(file.raw(name), file.tensors[name].qtype) for name in names]
    assert np.array_equal(np.concatenate(expected), values)
    cache.begin_step()
    assert values.ctypes.data == cache.matrix(0, 0).ctypes.data


def test_pages_of_pinned_units_are_given_back_once(file, team, monkeypatch):
    """Released when pinned; a unit that slides is read again each step and keeps its pages."""
    released = []
    monkeypatch.setattr(file, "release", released.append)
    layers = [
        WeightUnit(f"layer {i}", (WeightMatrix((TensorRows(name, 0, 64),), 64),))
        for i, name in enumerate(
            f"blk.{layer}.{part}.weight" for layer in (0, 1) for part in ("attn_q", "attn_output")
        )
    ]
    cache = DequantCache(file, layers, team, Stages(), max_units=3)
    _cycle(cache, 3)
    assert ["blk.0.attn_q.weight"] == released


def test_matrices_of_a_unit_count_as_one_visit(file, team):
    """Two matrices asked for in a row: one visit; the same unit in the next step: another."""
    source = TensorRows("token_embd.weight", 0, 16)
    unit = WeightUnit("layer", (WeightMatrix((source,), 64),) * 2)
    cache = DequantCache(file, [unit], team, Stages())
    for _ in range(3):
        cache.begin_step()
        cache.matrix(0, 0)
        cache.matrix(0, 1)
    assert (2, 1) == (cache.stats().hits, cache.stats().misses)


def test_dequantisation_is_a_stage(file, team):
    """Its time is seen apart from the projection that caused it."""
    stages = Stages()
    cache = DequantCache(file, [_unit(i) for i in range(4)], team, stages, max_units=2)
    stages.start()
    _cycle(cache)
    (record,) = stages.stop()
    assert ("dequantise", 4, {"float32"}) == (record.name, record.calls, record.dtypes)
    assert math.isfinite(record.seconds)

"""Stage records: time without the stages within, dtypes, contiguity, allocations."""

import time
import tracemalloc

import numpy as np
import pytest

from worker.stages import Stages


def test_nothing_is_recorded_when_off():
    """The same context manager every time, and no record."""
    stages = Stages()
    with stages.stage("norm") as first, stages.stage("attention") as second:
        first.output(np.zeros(3))
    assert first is second
    assert [] == stages.stop()


def test_inner_stages_are_taken_off_the_outer_one(monkeypatch):
    """A projection that dequantises first: 10 seconds, 7 of them dequantisation."""
    clock = iter([0.0, 1.0, 8.0, 10.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    stages = Stages()
    stages.start()
    with stages.stage("attn_qkv"), stages.stage("dequantise"):
        pass
    assert {"attn_qkv": 3.0, "dequantise": 7.0} == {r.name: r.seconds for r in stages.stop()}


def test_outputs_are_described():
    """Calls, dtypes seen, and one output with gaps among contiguous ones."""
    stages = Stages()
    stages.start()
    for array in (np.zeros((2, 2), np.float32), np.zeros((2, 4))[:, ::2]):
        with stages.stage("norm") as stage:
            stage.output(array)
    (record,) = stages.stop()
    assert (2, {"float32", "float64"}, False) == (record.calls, record.dtypes, record.contiguous)
    assert record.allocated_bytes is None


def test_allocations_are_recorded_when_traced():
    """A megabyte taken and given back within a stage shows as its peak."""
    stages = Stages()
    stages.start()
    tracemalloc.start()
    try:
        with stages.stage("sampling"):
            np.zeros(1 << 20, np.uint8)
        with stages.stage("norm"):
            pass
    finally:
        tracemalloc.stop()
    allocated = {r.name: r.allocated_bytes for r in stages.stop()}
    assert 1 << 20 <= allocated["sampling"] < 1.2 * (1 << 20)
    assert allocated["norm"] < 10_000


def test_starting_again_forgets():
    """A second run begins at zero."""
    stages = Stages()
    for _ in range(2):
        stages.start()
        with stages.stage("attention"):
            pass
    assert [1] == [record.calls for record in stages.stop()]


def test_an_unknown_stage_is_refused():
    """A misspelt name would vanish from the report."""
    stages = Stages()
    stages.start()
    with pytest.raises(AssertionError, match="nrom"):
        stages.stage("nrom")

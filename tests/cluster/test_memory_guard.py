"""The memory guard, with memory as a test has it; the last test on a real engine."""

from dataclasses import replace

import pytest

from cluster.engine_loop import EngineLoop
from cluster.memory_guard import Memory, MemoryGuard, memory_now
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

MIB = 1 << 20
PLENTY = Memory(available=8000 * MIB, rss=500 * MIB, mapped=400 * MIB, limit=16000 * MIB)


class Machine:
    """Memory that a test sets."""

    def __init__(self):
        self.now = PLENTY

    def __call__(self):
        """The figures."""
        return self.now


@pytest.fixture
def machine():
    """One with room."""
    return Machine()


def test_rows_are_held_back_preempted_and_let_in_again(machine):
    """Less than the reserve, less than half of it, the reserve again, and half as much more."""
    guard = MemoryGuard(32, 1000 * MIB, machine)
    seen = []
    for available, running in [
        (1001, 20),
        (999, 20),
        (700, 25),
        (499, 20),
        (499, 10),
        (1200, 5),
        (1499, 5),
        (1500, 5),
    ]:
        machine.now = replace(PLENTY, available=available * MIB)
        guard.look(running)
        seen.append(guard.max_running)
    assert [32, 20, 20, 10, 5, 5, 5, 32] == seen
    assert 1500 * MIB == guard.available


def test_one_row_goes_on_however_little_is_left(machine):
    """And one may come in when none runs."""
    guard = MemoryGuard(8, 1000 * MIB, machine)
    machine.now = replace(PLENTY, available=0)
    for running in (8, 4, 2, 1, 0):
        guard.look(running)
    assert 1 == guard.max_running


def test_what_begins_and_ends_is_told_once_with_the_figures(machine):
    """Not at each look."""
    guard = MemoryGuard(8, 1000 * MIB, machine)
    for available in (900, 400, 300, 1200, 2000, 2000):
        machine.now = replace(PLENTY, available=available * MIB)
        guard.look(8)
    begin, end = guard.take_notes()
    assert f"{400 * MIB:,} bytes are available, the worker has {500 * MIB:,}" in begin
    assert f"{1000 * MIB:,} are to be left alone (cluster.memory_reserve_bytes)" in begin
    assert "room again" in end
    assert [] == guard.take_notes()


def test_memory_of_its_own_near_the_limit_counts_though_the_machine_has_room(machine):
    """Pages of files do not: a mapped model as large as the memory is no reason to stop."""
    guard = MemoryGuard(8, 1000 * MIB, machine)
    machine.now = replace(PLENTY, rss=15900 * MIB, mapped=15000 * MIB)
    guard.look(8)
    assert 8 == guard.max_running
    machine.now = replace(PLENTY, rss=15900 * MIB, mapped=100 * MIB)
    guard.look(8)
    assert 4 == guard.max_running


@pytest.mark.parametrize(("limit", "reserve"), [(8000, 400), (64000, 1024)])
def test_by_default_a_twentieth_is_left_alone_and_at_most_a_gibibyte(machine, limit, reserve):
    """Of a small machine, and of a large one."""
    machine.now = replace(PLENTY, limit=limit * MIB)
    guard = MemoryGuard(8, None, machine)
    seen = []
    for available in (reserve, reserve - 1):
        machine.now = replace(machine.now, available=available * MIB)
        guard.look(6)
        seen.append(guard.max_running)
    assert [8, 6] == seen


def test_the_figures_of_this_machine_are_plausible():
    """A process has something, and not more than there is."""
    memory = memory_now()
    assert 0 < memory.rss < memory.limit
    assert 0 <= memory.mapped <= memory.rss
    assert 0 < memory.room < memory.limit


def test_no_token_changes_while_memory_comes_and_goes(data, machine, monkeypatch):
    """Rows are preempted in the middle and computed again: the same bits, log-probabilities too."""
    monkeypatch.setattr("cluster.engine_loop._LOOK_EVERY_S", 0.0)
    model, config = data / "cases/chain-llama.gguf", EngineConfig(threads=1, max_num_seqs=8)
    sampling = SamplingParams(max_tokens=20, temperature=2.0, logprobs=3, ignore_eos=True)
    rows = [Request(row_id=i, prompt=f"row {i}", sampling=sampling) for i in range(24)]
    expected = Engine.from_gguf(model, config).generate(rows)
    figures = [PLENTY, *(replace(PLENTY, available=each * MIB) for each in (300, 900, 8000))]
    looks = iter(range(10**6))
    guard = MemoryGuard(8, 1000 * MIB, lambda: figures[next(looks) // 3 % 4])
    engine = Engine.from_gguf(model, config)
    loop = EngineLoop(engine, guard)
    found = sorted(loop.submit(rows, 24).result(timeout=60), key=lambda each: each.row_id)
    loop.stop()
    assert 0 < engine.stats.snapshot().preemptions
    assert [(e.token_ids, e.logprobs) for e in expected] == [
        (e.token_ids, e.logprobs) for e in found
    ]

import threading
from dataclasses import replace

import pytest

from cluster.engine_loop import EngineLoop
from cluster.memory_guard import Memory, MemoryGuard
from cluster.rows import failed
from tests.cluster.fake_engine import FakeEngine, answer
from worker.engine.request import Request
from worker.errors import RowError

GIB = 1 << 30
PLENTY = Memory(available=8 * GIB, rss=GIB, mapped=0, limit=16 * GIB)


def guard(*figures):
    """A guard of 32 rows that sees these figures, the last one for ever."""
    left = [PLENTY, *figures]
    return MemoryGuard(32, None, lambda: left.pop(0) if len(left) > 1 else left[0])


@pytest.fixture
def loop():
    """A loop around a fake engine."""
    loop = EngineLoop(FakeEngine(), guard())
    yield loop
    loop.stop()


def requests(first, *prompts):
    """One request a prompt."""
    return [Request(row_id=first + index, prompt=prompt) for index, prompt in enumerate(prompts)]


def by_row(future):
    """The future's completions in row order."""
    return sorted(future.result(timeout=10), key=lambda completion: completion.row_id)


def test_shards_in_flight_together_get_their_own_rows(loop):
    """Rows of many shards share the engine; each future has the rows of its shard, each once."""
    shards = {first: requests(first, *"0?1!2") for first in range(0, 200, 10)}
    futures = {first: loop.submit(rows, len(rows)) for first, rows in shards.items()}
    for first, future in futures.items():
        assert [answer(row) for row in shards[first]] == by_row(future)


def test_rows_that_failed_before_the_engine_are_answered_too(loop):
    """A shard of failed rows alone ends without the engine."""
    rows = [failed(row_id, RowError("prompt is null")) for row_id in (3, 4)]
    assert rows == by_row(loop.submit(rows, 2))


def test_an_engine_failure_fails_every_open_and_every_later_shard():
    """Nothing waits for ever when the engine breaks, the cause is told each time."""
    loop = EngineLoop(FakeEngine(), guard())
    futures = [loop.submit(requests(0, "explode", "?"), 2), loop.submit(requests(10, "?"), 1)]
    with pytest.raises(RuntimeError, match="the engine broke"):
        futures[0].result(timeout=10)
    loop.stop()
    with pytest.raises(RuntimeError, match="the engine broke"):
        loop.submit(requests(20, "?"), 1).result(timeout=10)


def test_a_report_has_what_was_added_since_the_last_one(loop):
    """Samples hold differences, totals the sums; nothing is reported twice."""
    stats = loop._engine.stats.now
    loop.report()
    stats.decode_tokens += 5
    samples, totals = loop.report()
    assert [5] == [sample["decode_tokens"] for sample in samples]
    assert 5 == totals["decode_tokens"]
    assert ([], 5) == (loop.report()[0], loop.report()[1]["decode_tokens"])


def test_a_sample_has_what_was_added_and_how_things_stand(loop):
    """Of preemptions and of the prefix cache the difference, of idle KV blocks the number."""
    names = ("preemptions", "prefix_cache_queries", "prefix_cache_hits", "kv_blocks_idle")
    stats = loop._engine.stats.now
    for _ in range(2):
        stats.preemptions += 1
        stats.prefix_cache_queries += 20
        stats.prefix_cache_hits += 15
        stats.kv_blocks_idle = 4
        samples, totals = loop.report()
        assert [(1, 20, 15, 4)] == [tuple(sample[name] for name in names) for sample in samples]
    assert (2, 40, 30, 4) == tuple(totals[name] for name in names)


def test_stop_ends_the_thread():
    """No thread is left behind."""
    loop = EngineLoop(FakeEngine(), guard())
    loop.stop()
    assert "engine" not in {thread.name for thread in threading.enumerate() if thread.is_alive()}


def test_the_engine_is_told_how_many_rows_may_run_and_samples_say_it():
    """From the first step on; the notes come once."""
    short = replace(PLENTY, available=GIB // 4)
    loop = EngineLoop(FakeEngine(), guard(short))
    loop.submit(requests(0, *"0?1!2"), 5).result(timeout=10)
    assert [1] == loop._engine.limits[:1]
    loop._engine.stats.now.decode_tokens += 1
    samples, _ = loop.report()
    assert (GIB // 4, 1) == (samples[-1]["available_bytes"], samples[-1]["max_running"])
    assert [True, False] == [bool(loop.take_notes()) for _ in range(2)]
    loop.stop()

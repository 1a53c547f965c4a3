"""The thread that drives a worker's engine: shards in, completions out, a sample every second."""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

import psutil

from worker.engine.completion import Completion
from worker.engine.request import Request, RowId

from .memory_guard import MemoryGuard

_SAMPLE_EVERY_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.5  # at the memory
_ROWS_A_STEP: Final = 8  # rows tokenised between two steps, so that decoding does not stand still
_MOST_SAMPLES: Final = 3600  # an hour's worth, should nobody fetch them

_COUNTERS: Final = (
    "step_s",
    "prefill_tokens",
    "decode_tokens",
    "recomputed_tokens",
    "preemptions",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "preempted_hits",
    "dequant_hits",
    "dequant_misses",
)
_GAUGES: Final = (
    "running",
    "waiting",
    "kv_blocks_used",
    "kv_blocks_idle",
    "kv_blocks_total",
    "dequant_bytes",
)


class Snapshot(Protocol):
    """The engine's statistics at one moment."""

    def as_dict(self) -> Mapping[str, int | float]:
        """Name to value."""


class Stats(Protocol):
    """Where snapshots come from."""

    def snapshot(self) -> Snapshot:
        """Everything at this moment."""


class Engine(Protocol):
    """What the loop needs of an engine; ``worker.engine.Engine`` has it. One thread uses it."""

    @property
    def stats(self) -> Stats:
        """Counters."""

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has something to do."""

    def add_request(self, request: Request) -> None:
        """Take a request."""

    def limit_running(self, max_running: int) -> None:
        """Let at most so many rows run."""

    def step(self) -> list[Completion]:
        """Compute one batch and return the rows that ended."""


@dataclass(slots=True)
class _OpenShard:
    """A shard in work: rows still to come, and where its completions go."""

    missing: int
    future: "Future[list[Completion]]"
    completions: list[Completion] = field(default_factory=list)

    def take(self, completion: Completion) -> None:
        self.completions.append(completion)
        self.missing -= 1
        if self.missing == 0:
            self.future.set_result(self.completions)


class EngineLoop:
    """Runs an engine in a thread of its own.

    Shards wait in an inbox; their rows go to the engine a few at a time, in order, so the
    engine's batch refills across shard borders.

    Args:
        engine: used by the loop's thread alone from here on. If it raises, all open and all later
            shards fail with that exception.
        guard: says how many rows may run.
    """

    def __init__(self, engine: Engine, guard: MemoryGuard) -> None:
        self._engine = engine
        self._guard = guard
        self._next_look = 0.0
        self._wake = threading.Condition()
        self._inbox: deque[tuple[_OpenShard, Iterable[Request | Completion]]] = deque()
        self._rows: deque[tuple[_OpenShard, Request | Completion]] = deque()
        self._open: dict[RowId, _OpenShard] = {}
        self._failure: BaseException | None = None
        self._stopping = False
        self._sampler = _Sampler(engine.stats, guard)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(
        self, rows: Iterable[Request | Completion], num_rows: int
    ) -> "Future[list[Completion]]":
        """Queue a shard; the future gives its completions, in the order they ended.

        Args:
            rows: its requests; a Completion among them is a row that failed already.
            num_rows: how many they are, at least 1.
        """
        shard = _OpenShard(num_rows, Future())
        with self._wake:
            if self._failure is not None:
                shard.future.set_exception(self._failure)
                return shard.future
            self._inbox.append((shard, rows))
            self._wake.notify()
        return shard.future

    def report(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the samples since the last call, and the totals so far."""
        return self._sampler.drain()

    def take_notes(self) -> list[str]:
        """Return what is to be told since the last call."""
        return self._guard.take_notes()

    def stop(self) -> None:
        """End the thread after the step it is in; open shards stay unanswered."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self._feed()
                if self._engine.has_work:
                    self._look_at_memory()
                    for completion in self._engine.step():
                        self._open.pop(completion.row_id).take(completion)
                self._sampler.sample_if_due()
        # Whatever it is, the driver has to learn of it: nobody else looks at this thread.
        except BaseException as error:
            self._fail(error)

    def _look_at_memory(self) -> None:
        if monotonic() >= self._next_look:
            self._guard.look(int(self._engine.stats.snapshot().as_dict()["running"]))
            self._engine.limit_running(self._guard.max_running)
            self._next_look = monotonic() + _LOOK_EVERY_S

    def _wait_for_work(self) -> bool:
        """Take the inbox in, waiting while there is nothing to do; False when stopped."""
        with self._wake:
            while not (self._stopping or self._inbox or self._rows or self._engine.has_work):
                self._wake.wait(_SAMPLE_EVERY_S)
                self._sampler.sample_if_due()
            while self._inbox:
                shard, rows = self._inbox.popleft()
                self._rows.extend((shard, row) for row in rows)
            return not self._stopping

    def _feed(self) -> None:
        for _ in range(min(_ROWS_A_STEP, len(self._rows))):
            shard, row = self._rows.popleft()
            if isinstance(row, Completion):
                shard.take(row)
            else:
                self._open[row.row_id] = shard
                self._engine.add_request(row)

    def _fail(self, error: BaseException) -> None:
        with self._wake:
            self._failure = error
            shards = [*self._open.values(), *(shard for shard, _ in self._rows)]
            shards += [shard for shard, _ in self._inbox]
        for shard in shards:
            if not shard.future.done():
                shard.future.set_exception(error)


class _Sampler:
    """One record a second; counters as what was added since the record before.

    The lock guards the records. The engine's counters are read while it may be in a step: one of
    them may be a step newer than its neighbour, the next record evens that out.
    """

    def __init__(self, stats: Stats, guard: MemoryGuard) -> None:
        self._stats = stats
        self._guard = guard
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._started = self._last = monotonic()
        self._sampled = stats.snapshot().as_dict()
        self._samples: deque[dict[str, Any]] = deque(maxlen=_MOST_SAMPLES)

    def sample_if_due(self) -> None:
        """Take a sample when the last one is a second old; called by the engine's thread."""
        now = monotonic()
        with self._lock:
            if now - self._last >= _SAMPLE_EVERY_S:
                self._sample(now)

    def drain(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return what was sampled and the totals; work since the last sample becomes one."""
        now = monotonic()
        with self._lock:
            current = self._stats.snapshot().as_dict()
            if any(current[name] != self._sampled[name] for name in _COUNTERS):
                self._sample(now)
            samples = list(self._samples)
            self._samples.clear()
        return samples, dict(current) | {"elapsed_s": now - self._started}

    def _sample(self, now: float) -> None:
        current = self._stats.snapshot().as_dict()
        sample: dict[str, Any] = {name: current[name] for name in _GAUGES}
        sample |= {name: current[name] - self._sampled[name] for name in _COUNTERS}
        sample["elapsed_s"] = now - self._started
        sample["interval_s"] = now - self._last
        sample["rss_bytes"] = self._process.memory_info().rss
        sample["available_bytes"] = self._guard.available
        sample["max_running"] = self._guard.max_running
        self._samples.append(sample)
        self._sampled = current
        self._last = now

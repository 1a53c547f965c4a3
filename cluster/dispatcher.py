"""Which shard goes to which worker: a state machine without Ray, clocks or threads."""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from .errors import ClusterError
from .plan import Shard

WorkerT = TypeVar("WorkerT", bound=Hashable)


class Outcome(Enum):
    """What to do with a result that came in."""

    COMMIT = auto()
    REFUSE = auto()


@dataclass(slots=True)
class _Task:
    shard: Shard
    attempt: int = 0


@dataclass(slots=True)
class _InFlight:
    """The shards of one worker by their first row, and what they amount to."""

    tasks: dict[int, _Task] = field(default_factory=dict)
    num_rows: int = 0
    num_bytes: int = 0

    def add(self, task: _Task) -> None:
        self.tasks[task.shard.first_row] = task
        self.num_rows += task.shard.num_rows
        self.num_bytes += len(task.shard.payload)

    def remove(self, first_row: int) -> _Task:
        task = self.tasks.pop(first_row)
        self.num_rows -= task.shard.num_rows
        self.num_bytes -= len(task.shard.payload)
        return task


@dataclass(frozen=True, slots=True)
class Assignment(Generic[WorkerT]):
    """A shard to send to a worker; ``attempt`` counts from 1."""

    worker: WorkerT
    shard: Shard
    attempt: int


class Dispatcher(Generic[WorkerT]):
    """Hands shards out, each done exactly once.

    A worker holds at least ``min_shards`` shards while there are any, and more until it has
    ``target_rows`` rows or ``max_bytes`` bytes: small shards must not starve its batch. The
    shards of a lost worker go back to the front; its late results are refused.

    Args:
        min_shards: shards a worker holds before the other bounds count.
        target_rows: rows above which a worker gets no more shards.
        max_bytes: payload bytes above which a worker gets no more shards.
        max_attempts: how often a shard may be handed out.
    """

    def __init__(
        self, *, min_shards: int, target_rows: int, max_bytes: int, max_attempts: int
    ) -> None:
        self._min_shards = min_shards
        self._target_rows = target_rows
        self._max_bytes = max_bytes
        self._max_attempts = max_attempts
        self._pending: deque[_Task] = deque()
        self._workers: dict[WorkerT, _InFlight] = {}

    @property
    def workers(self) -> list[WorkerT]:
        """The live workers."""
        return list(self._workers)

    @property
    def wants_shard(self) -> bool:
        """Whether a further shard could be handed out at once."""
        return not self._pending and self._next_worker() is not None

    def add_worker(self, worker: WorkerT) -> None:
        """Count a worker in."""
        assert worker not in self._workers, "a worker can join once"
        self._workers[worker] = _InFlight()

    def add_shard(self, shard: Shard) -> None:
        """Queue a shard behind those waiting."""
        self._pending.append(_Task(shard))

    def assign(self) -> Iterator[Assignment[WorkerT]]:
        """Hand out waiting shards, each to the worker with the fewest rows."""
        while self._pending and (worker := self._next_worker()) is not None:
            task = self._pending.popleft()
            task.attempt += 1
            self._workers[worker].add(task)
            yield Assignment(worker, task.shard, task.attempt)

    def done(self, worker: WorkerT, first_row: int) -> Outcome:
        """Take a worker's result in: to be committed, or refused when the shard is not its own."""
        held = self._workers.get(worker)
        if held is None or first_row not in held.tasks:
            return Outcome.REFUSE
        held.remove(first_row)
        return Outcome.COMMIT

    def lose_worker(self, worker: WorkerT, reason: str) -> list[Shard]:
        """Take a worker out; its shards go to the front of the queue and are returned.

        Raises:
            ClusterError: a shard has used up its attempts.
        """
        held = self._workers.pop(worker, None)
        if held is None:
            return []
        tasks = sorted(held.tasks.values(), key=lambda task: task.shard.first_row)
        for task in tasks:
            if task.attempt >= self._max_attempts:
                rows = task.shard.rows
                raise ClusterError(
                    f"rows {rows.start} to {rows.stop - 1}: given up after {task.attempt} "
                    f"attempts, each lost with its worker; the last: {reason}"
                )
        self._pending.extendleft(reversed(tasks))
        return [task.shard for task in tasks]

    def check_invariants(self) -> None:
        """Assert that no shard is held twice and that the sums are right."""
        held = [task for flight in self._workers.values() for task in flight.tasks.values()]
        firsts = [task.shard.first_row for task in [*held, *self._pending]]
        assert len(set(firsts)) == len(firsts), "a shard is held twice"
        for flight in self._workers.values():
            shards = [task.shard for task in flight.tasks.values()]
            assert flight.num_rows == sum(shard.num_rows for shard in shards)
            assert flight.num_bytes == sum(len(shard.payload) for shard in shards)

    def _next_worker(self) -> WorkerT | None:
        """Return the worker with room that has the fewest rows; the earliest in a tie."""
        free = [worker for worker, held in self._workers.items() if self._has_room(held)]
        return min(free, key=lambda worker: self._workers[worker].num_rows, default=None)

    def _has_room(self, held: _InFlight) -> bool:
        if len(held.tasks) < self._min_shards:
            return True
        return held.num_rows < self._target_rows and held.num_bytes < self._max_bytes

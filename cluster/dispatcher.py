"""Which shard goes to which worker: a state machine without Ray, clocks or threads."""

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from .plan import Shard

WorkerT = TypeVar("WorkerT", bound=Hashable)

_LOSSES_IN_COMPANY: Final = 2
"""Losses after which a shard is tried alone: by then it may be the cause."""


class Outcome(Enum):
    """What to do with a result that came in."""

    COMMIT = auto()
    REFUSE = auto()


@dataclass(slots=True, eq=False)
class _Task:
    """A shard that is not done.

    ``losses`` counts the workers lost over it: in company while it is not ``alone``, then afresh.
    """

    shard: Shard
    attempts: int = 0
    losses: int = 0
    alone: bool = False

    def halves(self) -> "list[_Task]":
        return [_Task(shard, self.attempts, alone=True) for shard in self.shard.halves()]


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


@dataclass(frozen=True, slots=True)
class Loss:
    """What follows from the loss of a worker.

    Attributes:
        again: shards that are to be done again.
        given_up: shards of one row that lost their worker too often, each time alone.
    """

    again: tuple[Shard, ...] = ()
    given_up: tuple[Shard, ...] = ()


class Dispatcher(Generic[WorkerT]):
    """Hands shards out, each done exactly once.

    A worker holds at least ``min_shards`` shards while there are any, and more until it has
    ``target_rows`` rows or ``max_bytes`` bytes: small shards must not starve its batch. The
    shards of a lost worker go back to the front; its late results are refused.

    A shard that was lost twice is tried alone: one worker is emptied and gets nothing else
    meanwhile, so that nobody's neighbour is blamed. If it is lost alone it is cut in halves, and a
    single row that is lost alone ``max_attempts`` times is given up. After such a loss something
    else has to get done first, if there is anything: a proof that workers can work.

    Once no more shards will come, a worker that has nothing to do gets copies of others' shards,
    the last of the one with most to do first. Whichever is done first counts.

    Args:
        min_shards: shards a worker holds before the other bounds count.
        target_rows: rows above which a worker gets no more shards.
        max_bytes: payload bytes above which a worker gets no more shards.
        max_attempts: how often a row may lose its worker when it is alone.
    """

    def __init__(
        self, *, min_shards: int, target_rows: int, max_bytes: int, max_attempts: int
    ) -> None:
        self._min_shards = min_shards
        self._target_rows = target_rows
        self._max_bytes = max_bytes
        self._max_attempts = max_attempts
        self._pending: deque[_Task] = deque()
        self._suspects: deque[_Task] = deque()
        self._workers: dict[WorkerT, _InFlight] = {}
        self._quarantine: WorkerT | None = None
        self._is_last = False
        self._needs_proof = False

    @property
    def workers(self) -> list[WorkerT]:
        """The live workers."""
        return list(self._workers)

    @property
    def wants_shard(self) -> bool:
        """Whether a further shard could be handed out at once."""
        return not self._is_last and not self._pending and self._next_worker() is not None

    def holds_shards(self, worker: WorkerT) -> bool:
        """Tell whether a worker has something to do."""
        return bool(self._workers[worker].tasks)

    def add_worker(self, worker: WorkerT) -> None:
        """Count a worker in."""
        assert worker not in self._workers, "a worker can join once"
        self._workers[worker] = _InFlight()

    def add_shard(self, shard: Shard) -> None:
        """Queue a shard behind those waiting."""
        assert not self._is_last, "no more shards were to come"
        self._pending.append(_Task(shard))

    def no_more_shards(self) -> None:
        """Take note that the plan is at its end."""
        self._is_last = True

    def assign(self) -> Iterator[Assignment[WorkerT]]:
        """Hand out waiting shards, each to the worker with the fewest rows."""
        yield from self._assign_suspect()
        while self._pending and (worker := self._next_worker()) is not None:
            yield self._hand_out(self._pending.popleft(), worker)
        while self._is_last and not self._pending and (pair := self._next_copy()) is not None:
            yield self._hand_out(*pair)

    def done(self, worker: WorkerT, first_row: int) -> Outcome:
        """Take a worker's result in: to be committed, or refused when the shard is not its own.

        Copies of the shard at other workers are not waited for any more.
        """
        held = self._workers.get(worker)
        if held is None or first_row not in held.tasks:
            return Outcome.REFUSE
        self._needs_proof = False
        task = held.tasks[first_row]
        for flight in self._holders(task):
            flight.remove(first_row)
        return Outcome.COMMIT

    def lose_worker(self, worker: WorkerT) -> Loss:
        """Take a worker out; what it alone had in work goes to the front of the queue."""
        held = self._workers.pop(worker, None)
        if worker == self._quarantine:
            self._quarantine = None
        if held is None:
            return Loss()
        tasks = sorted(held.tasks.values(), key=lambda task: task.shard.first_row)
        again: list[Shard] = []
        given_up: list[Shard] = []
        for task in reversed([task for task in tasks if not self._holders(task)]):
            kept = self._requeue(task)
            (again if kept else given_up).append(task.shard)
        return Loss(tuple(reversed(again)), tuple(reversed(given_up)))

    def check_invariants(self) -> None:
        """Assert that shards are held once, copies aside, and that the sums are right."""
        held = [task for flight in self._workers.values() for task in flight.tasks.values()]
        tasks = [*dict.fromkeys(held), *self._pending, *self._suspects]
        firsts = [task.shard.first_row for task in tasks]
        assert len(set(firsts)) == len(firsts), "a shard is held twice"
        for flight in self._workers.values():
            shards = [task.shard for task in flight.tasks.values()]
            assert flight.num_rows == sum(shard.num_rows for shard in shards)
            assert flight.num_bytes == sum(len(shard.payload) for shard in shards)
            if any(task.alone for task in flight.tasks.values()):
                assert len(shards) == 1, "a suspect is not alone"

    def _assign_suspect(self) -> Iterator[Assignment[WorkerT]]:
        """Give the first suspect to an empty worker; let one run empty if there is none."""
        if not self._suspects or not self._workers or self._must_wait_for_proof():
            return
        if self._quarantine is None:
            self._quarantine = min(self._workers, key=lambda w: self._workers[w].num_rows)
        if not self._workers[self._quarantine].tasks:
            yield self._hand_out(self._suspects.popleft(), self._quarantine)

    def _must_wait_for_proof(self) -> bool:
        others = self._pending or any(held.tasks for held in self._workers.values())
        return bool(self._needs_proof and (others or not self._is_last))

    def _hand_out(self, task: _Task, worker: WorkerT) -> Assignment[WorkerT]:
        task.attempts += 1
        self._workers[worker].add(task)
        return Assignment(worker, task.shard, task.attempts)

    def _requeue(self, task: _Task) -> bool:
        """Queue a task whose worker was lost; False when it is given up."""
        task.losses += 1
        if not task.alone:
            if task.losses < _LOSSES_IN_COMPANY:
                self._pending.appendleft(task)
                return True
            task.alone, task.losses = True, 0
            self._suspects.appendleft(task)
            return True
        self._needs_proof = True
        if task.shard.num_rows > 1:
            self._suspects.extend(task.halves())
            return True
        if task.losses < self._max_attempts:
            self._suspects.append(task)
            return True
        return False

    def _holders(self, task: _Task) -> list[_InFlight]:
        first_row = task.shard.first_row
        flights = self._workers.values()
        return [flight for flight in flights if flight.tasks.get(first_row) is task]

    def _next_worker(self) -> WorkerT | None:
        """Return the worker with room that has the fewest rows; the earliest in a tie."""
        free = [worker for worker, held in self._workers.items() if self._has_room(worker, held)]
        return min(free, key=lambda worker: self._workers[worker].num_rows, default=None)

    def _has_room(self, worker: WorkerT, held: _InFlight) -> bool:
        if self._is_quarantined(worker):
            return False
        if len(held.tasks) < self._min_shards:
            return True
        return held.num_rows < self._target_rows and held.num_bytes < self._max_bytes

    def _is_quarantined(self, worker: WorkerT) -> bool:
        """Whether a worker is kept for suspects: while there are any, waiting or at it."""
        if worker != self._quarantine or self._must_wait_for_proof():
            return False
        tasks = self._workers[worker].tasks.values()
        if self._suspects or any(task.alone for task in tasks):
            return True
        self._quarantine = None
        return False

    def _next_copy(self) -> tuple[_Task, WorkerT] | None:
        """A worker without work, and the shard that would otherwise be done last."""
        idle = (w for w, held in self._workers.items() if not held.tasks)
        worker = next((w for w in idle if not self._is_quarantined(w)), None)
        if worker is None:
            return None
        busiest = sorted(self._workers.values(), key=lambda held: held.num_rows, reverse=True)
        for held in busiest:
            for task in reversed(held.tasks.values()):
                if not task.alone and len(self._holders(task)) == 1:
                    return task, worker
        return None

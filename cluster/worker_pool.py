"""The Ray actors of a job: started, talked to and ended here; everything comes back as events."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

import ray
import ray.exceptions

from .actor import Worker, WorkerSpec
from .dispatcher import Assignment
from .errors import JobConfigError, JobStoppedError
from .model_sender import RayModelSender, start_model_sender
from .version import VERSION

_CPU: Final = "CPU"
_ADVICE: Final = "Some common causes include"  # what Ray puts behind every death, true or not
_MEMORY: Final = "OOM kill reason: "
_REASON_CHARACTERS: Final = 300
_IMPORT_FAILURES: Final = ("ModuleNotFoundError", "ImportError", "AttributeError")


class EventKind(Enum):
    """What came back from a worker."""

    IDENTIFIED = auto()
    LOADED = auto()
    SHARD_DONE = auto()
    REPORTED = auto()
    LOST = auto()
    UNUSABLE = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that came back from a worker.

    Attributes:
        worker_id: which one.
        kind: what.
        value: what the worker's method returned; for LOST and UNUSABLE the reason as text.
        first_row: the shard, for SHARD_DONE.
    """

    worker_id: str
    kind: EventKind
    value: Any
    first_row: int = -1


@dataclass(frozen=True, slots=True)
class _Call:
    worker_id: str
    kind: EventKind
    first_row: int = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """How many workers of how many threads a cluster is to hold."""

    workers: int
    threads: int


def place_workers(workers: int | None, threads: int | None) -> Placement:
    """Fit the workers that were asked for to the nodes of the running cluster.

    Args:
        workers: None takes one for each node.
        threads: of a worker; None shares out the CPUs of the smallest node evenly.

    Raises:
        JobConfigError: they cannot all be placed; needed and available CPUs are named.
    """
    nodes = _cpus_of_nodes()
    if not nodes:
        raise JobConfigError("no node of the Ray cluster has a CPU to give; start one that has")
    workers = workers or len(nodes)
    threads = threads or max(1, min(nodes) // -(-workers // len(nodes)))
    places = sum(cpus // threads for cpus in nodes)
    if places < workers:
        raise JobConfigError(
            f"workers: {workers} with {threads} threads each need {workers * threads} CPUs, the "
            f"Ray cluster has {sum(nodes)} on {len(nodes)} nodes, room for {places}; lower "
            "cluster.workers or engine.threads, or add nodes"
        )
    return Placement(workers, threads)


def _cpus_of_nodes() -> list[int]:
    """CPUs of each living node that has any."""
    known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    nodes = [int(node["Resources"].get(_CPU, 0)) for node in known if node["Alive"]]
    return [cpus for cpus in nodes if cpus > 0]


class WorkerPool:
    """Starts, calls and ends workers. No call blocks; ``poll`` waits for what comes back.

    Args:
        spec: what every worker is told.
        num_cpus: CPUs that Ray sets aside for each, one for a thread.
        model: path of the model here, for nodes that cannot get it from its source.
        driver: number of the run's driver; workers of different drivers have different names.
        worker_class: the class to make actors of.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        num_cpus: int,
        model: Path,
        driver: int = 1,
        worker_class: Callable[[str], Any] = Worker,
    ) -> None:
        self._spec = spec
        self._num_cpus = num_cpus
        self._name = "worker" if driver == 1 else f"driver-{driver}-worker"
        # A worker that is lost is replaced by a new one with a new name: Ray's own restarts would
        # bring back an actor that has forgotten its model and its shards.
        self._remote = ray.remote(worker_class).options(
            num_cpus=num_cpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._actors: dict[str, Any] = {}  # an actor's methods are not known to the type checker
        self._calls: dict[ray.ObjectRef[Any], _Call] = {}
        self._num_started = 0
        self._model = model
        self._sender: RayModelSender | None = None

    def start_worker(self) -> str:
        """Start a worker; it says IDENTIFIED, or LOST, or UNUSABLE on a node without tokenmill."""
        worker_id = f"{self._name}-{self._num_started}"
        self._num_started += 1
        actor: Any = self._remote.remote(worker_id)
        self._actors[worker_id] = actor
        self._calls[actor.identify.remote()] = _Call(worker_id, EventKind.IDENTIFIED)
        return worker_id

    def load(self, worker_id: str) -> None:
        """Have a worker load the model; it says LOADED, or LOST."""
        ref = self._actors[worker_id].load.remote(self._spec)
        self._calls[ref] = _Call(worker_id, EventKind.LOADED)

    def send_model(self, worker_id: str) -> None:
        """Have a worker take the model from here and load it; it says LOADED, or LOST."""
        if self._sender is None:
            self._sender = start_model_sender(self._model)
        ref = self._actors[worker_id].load.remote(self._spec, self._sender)
        self._calls[ref] = _Call(worker_id, EventKind.LOADED)

    def send(self, assignment: Assignment[str]) -> None:
        """Send a shard; the worker says SHARD_DONE, or LOST."""
        shard = assignment.shard
        ref = self._actors[assignment.worker].run_shard.remote(
            shard.first_row, shard.num_rows, shard.payload, assignment.attempt
        )
        self._calls[ref] = _Call(assignment.worker, EventKind.SHARD_DONE, shard.first_row)

    def ask_report(self, worker_id: str) -> None:
        """Ask for a report unless one is under way; the worker says REPORTED, or LOST."""
        under_way = (call for call in self._calls.values() if call.kind is EventKind.REPORTED)
        if worker_id not in {call.worker_id for call in under_way}:
            ref = self._actors[worker_id].report.remote()
            self._calls[ref] = _Call(worker_id, EventKind.REPORTED)

    def num_nodes(self) -> int:
        """Return how many nodes of the cluster could hold a worker."""
        return sum(cpus >= self._num_cpus for cpus in _cpus_of_nodes())

    def poll(self, timeout_s: float) -> list[Event]:
        """Wait until something comes back or the time is over, and return all there is.

        Raises:
            JobStoppedError: Ray itself failed.
        """
        calls = list(self._calls)
        if not calls:
            return []
        try:
            ready, rest = ray.wait(calls, num_returns=1, timeout=timeout_s)
            if ready and rest:
                ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        except ray.exceptions.RayError as error:
            raise JobStoppedError(
                f"Ray itself failed ({_reason(error)}); committed rows are kept"
            ) from error
        return [self._event(ref) for ref in ready if ref in self._calls]

    def end_worker(self, worker_id: str) -> None:
        """End a worker's process and forget what it was asked."""
        actor = self._actors.pop(worker_id, None)
        if actor is not None:
            ray.kill(actor, no_restart=True)
        self._calls = {
            ref: call for ref, call in self._calls.items() if call.worker_id != worker_id
        }

    def stop(self) -> None:
        """End all workers at once."""
        for worker_id in list(self._actors):
            self.end_worker(worker_id)
        if self._sender is not None:
            ray.kill(self._sender.reader, no_restart=True)

    def _event(self, ref: ray.ObjectRef[Any]) -> Event:
        call = self._calls.pop(ref)
        try:
            return Event(call.worker_id, call.kind, ray.get(ref), call.first_row)
        except ray.exceptions.RayError as error:
            self.end_worker(call.worker_id)
            reason = _reason(error)
            if call.kind is EventKind.IDENTIFIED and reason.startswith(_IMPORT_FAILURES):
                reason = (
                    f"a worker cannot start on its node ({reason}); install tokenmill {VERSION} on "
                    "every machine of the cluster, or use ray job submit --working-dir"
                )
                return Event(call.worker_id, EventKind.UNUSABLE, reason)
            return Event(call.worker_id, EventKind.LOST, reason)


def _reason(error: ray.exceptions.RayError) -> str:
    """Return in one line why a worker is of no more use."""
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause if isinstance(error.cause, BaseException) else error
        return f"{type(cause).__name__}: {cause}".split("\n", 1)[0]
    if _MEMORY in str(error):
        used = str(error).split(_MEMORY, 1)[1].split("\n", 1)[0]
        return f"killed for memory ({used}); lower cluster.workers or the engine's memory settings"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[-1] if lines else type(error).__name__
    return reason.split(_ADVICE, 1)[0].strip()[:_REASON_CHARACTERS]

"""The driver: starts workers, hands out shards, commits results, writes parts."""

import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import pyarrow as pa

import kvpool.errors
import worker.errors
from worker.engine.request import RowId

from .committed import NOTHING, Committed
from .dispatcher import Dispatcher, Outcome
from .error_counts import count_errors
from .errors import JobConfigError, JobStoppedError, RowErrorsError
from .input_files import display
from .job import Job
from .journal import Journal, read_journals
from .manifest import PartRecord
from .parts import PartWriter
from .plan import Shard
from .progress import Phase, Progress, ProgressCallback
from .rows import failed
from .run_directory import RunDirectory
from .shard_table import check_rows, shard_table
from .software import difference
from .statistics import SampleSpool, write_worker_totals
from .stop_signal import StopSignal
from .time_histogram import TimeHistogram
from .worker_pool import Event, EventKind, Placement, WorkerPool
from .worker_record import WorkerRecord

_POLL_S: Final = 0.25
_REPORT_EVERY_S: Final = 1.0
_LAST_REPORT_S: Final = 5.0
_BYTES_IN_FLIGHT: Final = 8 << 20  # a worker's share, once it has its fewest shards
_LATECOMER_SHARE: Final = 0.1  # of start_timeout_s: how long those who are ready wait for others


@dataclass(slots=True)
class Totals:
    """What was committed so far."""

    num_rows: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None

    @property
    def num_errors(self) -> int:
        """Rows that failed."""
        return self.errors.total()


class Driver:
    """Runs one job on a pool of workers.

    Args:
        job: what to do.
        num_rows: rows of the dataset.
        run: the claimed output folder.
        pool: where workers come from.
        placement: how many workers, of how many threads.
        stop: tells whether a signal came.
        progress: told about the job's state.
        committed: what earlier drivers of the run left.
        numerics: the numerics identity of the rows they left; None if there are none.
    """

    def __init__(
        self,
        *,
        job: Job,
        num_rows: int,
        run: RunDirectory,
        pool: WorkerPool,
        placement: Placement,
        stop: StopSignal,
        progress: ProgressCallback,
        committed: Committed = NOTHING,
        numerics: str | None = None,
    ) -> None:
        config = job.cluster
        self._config = config
        self._num_rows = num_rows
        self._run = run
        self._pool = pool
        self._placement = placement
        self._stop = stop
        self._progress = progress
        self._dispatcher: Dispatcher[str] = Dispatcher(
            min_shards=config.shards_in_flight,
            target_rows=2 * job.engine.max_num_seqs,
            max_bytes=_BYTES_IN_FLIGHT,
            max_attempts=config.max_attempts,
        )
        self._samples = SampleSpool(run)
        self._journal: Journal | None = None
        self._parts: PartWriter | None = None
        self._numerics = numerics
        self._phase = Phase.STARTING
        self._started = monotonic()
        self._next_report = 0.0
        self.workers: dict[str, WorkerRecord] = {}
        self._losses_in_a_row = 0
        self._has_worked = False
        self._alone_since: float | None = None
        self.rows_before = committed.num_rows
        self.totals = Totals(
            num_rows=committed.num_rows,
            errors=Counter(committed.errors),
            first_error=committed.first_error,
        )
        self.ttft = TimeHistogram()
        self._written = dict(committed.parts)
        self.elapsed_s = 0.0

    @property
    def numerics(self) -> str:
        """The numerics identity that all rows of the run share; there is a ready worker."""
        assert self._numerics is not None, "asked for once a worker is ready"
        return self._numerics

    @property
    def part_records(self) -> list[PartRecord]:
        """Records of the parts that are written, in order."""
        return [self._written[index] for index in sorted(self._written)]

    def start(self) -> None:
        """Start the workers; return when all are ready, or some are and the others take too long.

        Raises:
            JobConfigError: software or numerics identities differ.
            JobStoppedError: no worker came up in time, or a signal came.
            WorkerError, KVPoolError: the model or the settings cannot work.
        """
        for _ in range(self._placement.workers):
            self._start_worker()
        while not self._may_begin():
            self._turn()

    def run(self, shards: Iterator[Shard], parts: PartWriter) -> None:
        """Do all shards and write all parts.

        Raises:
            InputError: an input file cannot be read; what is committed is kept.
            JobStoppedError: a signal, a full disk, or no worker is left.
            RowErrorsError: more rows failed than ``max_errors`` allows.
        """
        self._phase, self._parts = Phase.RUNNING, parts
        self._journal = Journal(self._run, self.rows_before)
        self._started = monotonic()
        try:
            self._write_parts()
            self._check_errors()
            while not parts.is_done:
                self._dispatch(shards)
                self._turn()
        finally:
            self._note(last=True)
        self.elapsed_s = monotonic() - self._started
        self._phase = Phase.FINISHING
        self._tell()
        self._collect_last_reports()

    @property
    def _standing(self) -> str:
        """How far the job is, and how much of it a reader of the output folder sees."""
        in_parts = sum(record.num_rows for record in self._written.values())
        return (
            f"{self.totals.num_rows} of {self._num_rows} rows are done, {in_parts} of them in the "
            f"{len(self._written)} finished parts of {display(str(self._run.path))}"
        )

    def write_statistics(self) -> None:
        """Write the statistics of workers and seconds, those of earlier drivers among them.

        Raises:
            JobStoppedError: the storage failed.
        """
        self._note(last=True)
        self._samples.write()
        journals = read_journals(self._run.shards)
        write_worker_totals(self._run, [row for entry in journals for row in entry.workers])

    def _turn(self) -> None:
        """Wait a moment, take in what came back, and tell how things stand."""
        if self._stop.name is not None:
            # Now: workers take a moment to end, and `ray job stop` gives us three seconds.
            self._tell(f"{self._stop.name} came, ending the workers; {self._standing}")
            raise JobStoppedError(f"stopped by {self._stop.name}: {self._standing}")
        for event in self._pool.poll(_POLL_S):
            self._handle(event)
        self._look_after_workers()
        self._note()
        self._tell()

    def _note(self, *, last: bool = False) -> None:
        """Write the journal and the samples when it is time, or the driver ends."""
        if self._journal is None:
            return
        rows = [worker.as_row() for worker in self.workers.values()]
        if last:
            self._samples.flush()
            self._journal.write(self.totals.num_rows, rows)
        else:
            self._journal.write_if_due(self.totals.num_rows, rows)

    def _dispatch(self, shards: Iterator[Shard]) -> None:
        while True:
            for assignment in self._dispatcher.assign():
                self.workers[assignment.worker].alive_at = monotonic()
                self._pool.send(assignment)
            if not self._dispatcher.wants_shard:
                return
            shard = next(shards, None)
            if shard is None:
                self._dispatcher.no_more_shards()
            else:
                self._dispatcher.add_shard(shard)

    def _handle(self, event: Event) -> None:
        match event.kind:
            case EventKind.IDENTIFIED | EventKind.LOADED | EventKind.UNUSABLE:
                self._admit(event)
            case EventKind.SHARD_DONE:
                self._shard_done(event)
            case EventKind.REPORTED:
                self._reported(self.workers[event.worker_id], event.value)
            case EventKind.LOST:
                self._lost(event.worker_id, event.value)

    def _reported(self, record: WorkerRecord, report: dict[str, Any]) -> None:
        record.show_life(report["life"], monotonic())
        if record.show_arrival(report["arrived"], monotonic()):
            self._tell(
                f"{record.worker_id} on {record.node}: {record.arrived >> 20:,} MiB of a model "
                "have come"
            )
        record.totals = report["totals"] or record.totals
        self._samples.add(report["samples"])
        for note in report["notes"]:
            self._tell(f"{record.worker_id} on {record.node}: {note}")

    def _start_worker(self, *, joined_late: bool = False) -> None:
        worker_id = self._pool.start_worker()
        record = WorkerRecord(worker_id, self._placement.threads, joined_late=joined_late)
        self.workers[worker_id] = record

    def _admit(self, event: Event) -> None:
        """Take a newcomer one step further.

        One that cannot work ends a job that is starting, counts as lost when it replaces another
        one, and is left out when it came with a node that joined.
        """
        try:
            match event.kind:
                case EventKind.IDENTIFIED:
                    self._identified(event.worker_id, event.value)
                case EventKind.LOADED:
                    self._loaded(event.worker_id, event.value)
                case _:
                    raise JobConfigError(event.value)
        except (JobConfigError, worker.errors.WorkerError, kvpool.errors.KVPoolError) as error:
            if self._phase is Phase.STARTING:
                raise
            self._pool.end_worker(event.worker_id)
            if self.workers[event.worker_id].joined_late:
                self._mark_lost(event.worker_id, f"left out: {error}")
            else:
                self._lost(event.worker_id, str(error))

    def _identified(self, worker_id: str, identity: dict[str, Any]) -> None:
        """Refuse other software before anything is sent that it might not understand."""
        record = self.workers[worker_id]
        record.identity = identity
        record.alive_at = monotonic()
        other = difference(identity)
        if other is not None:
            raise JobConfigError(f"node {record.node}: {other}")
        self._pool.load(worker_id)

    def _loaded(self, worker_id: str, answer: dict[str, Any]) -> None:
        record = self.workers[worker_id]
        if "lacks_model" in answer:
            reason = answer["lacks_model"]
            self._tell(f"{worker_id} on {record.node} lacks the model ({reason}); sending it")
            self._pool.send_model(worker_id)
            return
        if "error" in answer:
            raise _worker_error(record.node, answer["error_class"], answer["error"])
        self._numerics = self._numerics or answer["numerics"]
        if self._numerics != answer["numerics"]:
            raise JobConfigError(
                f"node {record.node} computes with {answer['numerics']}, {self._others()} "
                f"with {self._numerics}: rows would depend on where they are done; use one "
                "kind of machine and library"
            )
        record.numerics, record.load_s = answer["numerics"], answer["load_s"]
        record.reserved_bytes = answer["reserved_bytes"]
        record.available_bytes = answer["available_bytes"]
        if self._phase is Phase.STARTING or self._is_first_of_new_node(record):
            self._check_memory(record.node)
        if self._phase is Phase.STARTING:
            self._tell(f"{worker_id} on {record.node}: KV pool of {answer['kv_pool']}")
        self._dispatcher.add_worker(worker_id)

    def _others(self) -> str:
        """Say whose numerics identity a newcomer differs from."""
        nodes = [w.node for w in self.workers.values() if w.numerics is not None]
        return f"node {nodes[0]}" if nodes else "the rows that are done already"

    def _is_first_of_new_node(self, record: WorkerRecord) -> bool:
        there = [w for w in self.workers.values() if w.node == record.node and w.is_loaded]
        return record.joined_late and there == [record]

    def _check_memory(self, node: str) -> None:
        """Refuse workers that fit one by one and not together, before the node kills them.

        Later on it could not be told: what living workers hold is no longer available.
        """
        loaded = [w for w in self.workers.values() if w.node == node and w.is_loaded]
        needed = sum(worker.reserved_bytes for worker in loaded)
        available = min(worker.available_bytes for worker in loaded)
        if needed > available:
            raise JobConfigError(
                f"node {node}: not enough memory for {len(loaded)} of {self._placement.workers} "
                f"workers: their KV pools and dequant caches need {needed} bytes, {available} are "
                "available; lower cluster.workers, engine.kv_pool_bytes (or kv_pool_tokens, "
                "kv_pool_share) or engine.dequant_cache_bytes"
            )

    def _shard_done(self, event: Event) -> None:
        if self._dispatcher.done(event.worker_id, event.first_row) is Outcome.REFUSE:
            return
        with pa.ipc.open_stream(event.value) as reader:
            table = reader.read_all()
        rows = range(event.first_row, event.first_row + table.num_rows)
        check_rows(table, rows)
        self._losses_in_a_row, self._has_worked = 0, True
        self._commit(self.workers[event.worker_id], rows, table)

    def _commit(self, record: WorkerRecord, rows: range, table: pa.Table) -> None:
        assert self._parts is not None, "shards are sent once parts can be written"
        self._run.commit_shard(rows, table)
        self._count(record, table)
        self._parts.add(rows)
        self._write_parts()
        self._check_errors()

    def _count(self, record: WorkerRecord, table: pa.Table) -> None:
        errors = count_errors(table)
        record.shards += 1
        record.rows += table.num_rows
        record.row_errors += errors.total()
        if errors and self.totals.first_error is None:
            self.totals.first_error = table.column("error").drop_null()[0].as_py()
        self.totals.num_rows += table.num_rows
        self.totals.errors += errors
        for seconds in table.column("ttft_s").drop_null().to_pylist():
            self.ttft.add(seconds)

    def _write_parts(self) -> None:
        assert self._parts is not None, "called while running"
        for record in self._parts.write_ready():
            self._written[record.index] = record

    def _check_errors(self) -> None:
        limit = self._config.max_errors
        if limit is not None and self.totals.num_errors > limit:
            raise RowErrorsError(
                f"{self.totals.num_errors} rows failed, max_errors is {limit}; the first: "
                f"{self.totals.first_error}; {self._standing}"
            )

    def _lost(self, worker_id: str, reason: str) -> None:
        self._mark_lost(worker_id, reason)
        self._losses_in_a_row += 1
        if self._losses_in_a_row <= self._config.max_worker_restarts:
            self._start_worker()
        elif not self._living:
            raise JobStoppedError(
                f"no worker is left after {self._losses_in_a_row} were lost one after the other, "
                f"the last because of: {reason}; {self._standing}"
            )

    def _mark_lost(self, worker_id: str, reason: str) -> None:
        record = self.workers[worker_id]
        record.loss_reason = reason
        loss = self._dispatcher.lose_worker(worker_id)
        self._tell(
            f"{worker_id} on {record.node} is lost ({reason}); shards again: {len(loss.again)}"
        )
        for shard in loss.given_up:
            self._give_up(record, shard)
        if loss.given_up and self._has_worked:
            self._losses_in_a_row = 0  # it was the rows' fault

    def _give_up(self, record: WorkerRecord, shard: Shard) -> None:
        """Answer a row whose workers die with an error, which names nothing of this run."""
        error = worker.errors.LostWorkersError(
            f"the worker died {self._config.max_attempts} times (max_attempts) while it worked on "
            "this row alone"
        )
        table = shard_table(
            [failed(RowId(row_id), error) for row_id in shard.rows],
            shard.rows,
            worker_id=record.worker_id,
            attempt=self._config.max_attempts,
            optional=frozenset(),
        )
        self._commit(record, shard.rows, table)

    @property
    def _living(self) -> list[WorkerRecord]:
        return [worker for worker in self.workers.values() if worker.loss_reason is None]

    def _replace_stalled(self) -> None:
        """Take workers that show no progress for lost, by this machine's monotonic clock."""
        now, limit = monotonic(), self._config.stall_timeout_s
        for record in self._living:
            is_due = record.identity and (
                not record.is_loaded or self._dispatcher.holds_shards(record.worker_id)
            )
            if is_due and now - record.alive_at > limit:
                self._pool.end_worker(record.worker_id)
                self._lost(record.worker_id, f"no progress for {limit:g} s (stall_timeout_s)")

    def _wait_for_workers(self) -> None:
        """Note that no worker is there, and for how long that may be."""
        now, limit = monotonic(), self._config.no_worker_timeout_s
        if self._phase is not Phase.RUNNING or self._dispatcher.workers:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
            self._tell(f"no worker is left; waiting up to {limit:g} s for one")
        elif now - self._alone_since > limit:
            raise JobStoppedError(
                f"no worker for {limit:g} s (no_worker_timeout_s); {self._standing}"
            )

    def _grow(self) -> None:
        """Start workers on nodes that joined, when the number of workers is the nodes'."""
        if self._config.workers is None and self._phase is Phase.RUNNING:
            there = sum(w.loss_reason is None or w.joined_late for w in self.workers.values())
            for _ in range(self._pool.num_nodes() - there):
                self._start_worker(joined_late=True)

    def _may_begin(self) -> bool:
        ready = len(self._dispatcher.workers)
        if ready and ready == len(self._living):
            return True
        now, limit = monotonic(), self._config.start_timeout_s
        if ready:
            return now - self._started > _LATECOMER_SHARE * limit
        # While a model is on its way, its size says how long that takes.
        waited = now - max([self._started, *(worker.fetched_at for worker in self._living)])
        if waited > limit:
            raise JobStoppedError(
                f"no worker was ready after {waited:.0f} s (start_timeout_s is {limit:g}); check "
                "that the Ray cluster has free CPUs, and the workers' logs"
            )
        return False

    def _look_after_workers(self) -> None:
        """Ask for reports, and see who hangs, who is missing and who could join; every second."""
        now = monotonic()
        if now >= self._next_report:
            self._next_report = now + _REPORT_EVERY_S
            for record in self._living:
                if record.identity:
                    self._pool.ask_report(record.worker_id)
            self._replace_stalled()
            self._wait_for_workers()
            self._grow()

    def _collect_last_reports(self) -> None:
        """Get what workers counted since their last report; a lost one no longer matters."""
        deadline = monotonic() + _LAST_REPORT_S
        for _ in range(2):  # the first may have been under way since before the last row
            waiting = set(self._dispatcher.workers)
            for worker_id in waiting:
                self._pool.ask_report(worker_id)
            while waiting and monotonic() < deadline:
                for event in self._pool.poll(_POLL_S):
                    waiting.discard(event.worker_id)
                    if event.kind is EventKind.REPORTED:
                        self._handle(event)
                    elif event.kind is EventKind.LOST:
                        self._mark_lost(event.worker_id, event.value)

    def _tell(self, note: str | None = None) -> None:
        workers = self.workers.values()
        self._progress(
            Progress(
                phase=self._phase,
                num_rows=self._num_rows,
                rows_done=self.totals.num_rows,
                rows_before=self.rows_before,
                num_errors=self.totals.num_errors,
                prompt_tokens=sum(w.total("prefill_tokens") for w in workers),
                generated_tokens=sum(w.total("decode_tokens") for w in workers),
                elapsed_s=monotonic() - self._started,
                workers_ready=len(self._dispatcher.workers),
                num_workers=self._placement.workers,
                note=note,
            )
        )


def _worker_error(node: str, name: str, message: str) -> Exception:
    """Return what a worker raised as an exception of the same class."""
    kind = getattr(worker.errors, name, None) or getattr(kvpool.errors, name)
    error: Exception = kind(message if node == socket.gethostname() else f"node {node}: {message}")
    return error

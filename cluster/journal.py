"""What a driver notes of itself in the run directory while it works.

A run may have several drivers, one after the other. Each keeps a journal: who it is, how far it
came and what its workers did. ``tokenmill status`` reads the last one, the statistics read all.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from .commit import commit_json
from .location import Location, named
from .lock import this_process
from .run_directory import RunDirectory

_EVERY_S: Final = 5.0


@dataclass(slots=True, kw_only=True)
class Entry:
    """A journal's newest state.

    Attributes:
        driver: 1 for the first driver of the run, and so on.
        host, pid: where it runs, as which process.
        started: when it began, UTC.
        updated: when this was written, UTC.
        elapsed_s: seconds between the two by the driver's monotonic clock.
        rows_before: rows that were committed when it began.
        rows_done: rows committed by all drivers together.
        workers: its workers, as rows of ``workers.parquet``.
    """

    driver: int
    host: str
    pid: int
    started: str
    updated: str
    elapsed_s: float
    rows_before: int
    rows_done: int
    workers: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def rows_per_s(self) -> float | None:
        """Rows a second since it began; None before the first."""
        done = self.rows_done - self.rows_before
        return done / self.elapsed_s if done and self.elapsed_s > 0 else None


class Journal:
    """Writes one driver's journal.

    Args:
        run: whose work folder takes it.
        rows_before: rows that were committed when the driver began.
    """

    def __init__(self, run: RunDirectory, rows_before: int) -> None:
        self._run = run
        self._started = monotonic()
        self._next = 0.0
        now = this_process()
        self._entry = Entry(
            driver=next_driver(run.shards),
            **now,
            updated=now["started"],
            elapsed_s=0.0,
            rows_before=rows_before,
            rows_done=rows_before,
        )

    def write_if_due(self, rows_done: int, workers: list[Mapping[str, Any]]) -> None:
        """Write how things stand, every few seconds.

        Raises:
            JobStoppedError: the storage failed.
        """
        if monotonic() >= self._next:
            self.write(rows_done, workers)

    def write(self, rows_done: int, workers: list[Mapping[str, Any]]) -> None:
        """Write how things stand.

        Raises:
            JobStoppedError: the storage failed.
        """
        self._next = monotonic() + _EVERY_S
        self._entry.updated = datetime.now(UTC).isoformat(timespec="seconds")
        self._entry.elapsed_s = monotonic() - self._started
        self._entry.rows_done, self._entry.workers = rows_done, workers
        commit_json(_path(self._run.shards, self._entry.driver), asdict(self._entry))


def next_driver(shards: Location) -> int:
    """Return the number of a driver that begins now."""
    return 1 + max((entry.driver for entry in read_journals(shards)), default=0)


def restore_journal(
    run: RunDirectory, driver: int, rows_done: int, workers: list[Mapping[str, Any]]
) -> None:
    """Write one journal in place of those of all drivers that finished a run.

    Args:
        run: a finished run that is being opened again.
        driver: the last one's number.
        rows_done: rows that stay as they are.
        workers: those of all drivers.

    Raises:
        JobStoppedError: the storage failed.
    """
    now = this_process()
    entry = Entry(
        driver=driver,
        **now,
        updated=now["started"],
        elapsed_s=0.0,
        rows_before=rows_done,
        rows_done=rows_done,
        workers=workers,
    )
    commit_json(_path(run.shards, driver), asdict(entry))


def read_journals(shards: Location) -> list[Entry]:
    """Return the journals of all drivers of a run, in order; one that is damaged is left out."""
    return [entry for path in named(shards, "driver-*.json") if (entry := _read(path))]


def _read(path: Location) -> Entry | None:
    try:
        return Entry(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        return None


def _path(shards: Location, driver: int) -> Location:
    return shards / f"driver-{driver:04d}.json"

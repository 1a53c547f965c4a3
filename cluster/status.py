"""How far a run is, from its folder alone: while a driver works there, and after it died."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from .commit import storage_errors
from .error_counts import count_errors
from .errors import JobConfigError
from .input_files import display
from .journal import Entry, read_journals
from .lease import is_held
from .location import Location, location, without_secrets
from .lock import is_locked
from .manifest import Manifest, total_errors
from .output_columns import SHARD_SCHEMA
from .plan import CuttingRule
from .retry import Retry
from .run_directory import LOCK, MANIFEST, SUCCESS, RunDirectory

_LOOKS: Final = 5  # a driver may move rows from shards to a part while we count


class RunState(StrEnum):
    """What is going on in a run directory."""

    RUNNING = "running"
    STOPPED = "stopped"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run at one moment.

    Attributes:
        state: running, stopped (the same command goes on) or complete.
        num_rows: rows of the input.
        rows_done: rows that are committed, without those that a retry wants again.
        errors: those of them that ended in an error, by kind.
        num_parts: parts that readers see.
        driver: what the newest driver noted of itself; None before its first note and once the run
            is complete.
    """

    state: RunState
    num_rows: int
    rows_done: int
    errors: Mapping[str, int]
    num_parts: int
    driver: Entry | None

    @property
    def rows_failed(self) -> int:
        """Rows that ended in an error."""
        return sum(self.errors.values())

    @property
    def rows_left(self) -> int:
        """Rows that are not committed."""
        return self.num_rows - self.rows_done

    @property
    def rows_per_s(self) -> float | None:
        """Rows a second of the newest driver since it began; None if unknown."""
        return None if self.driver is None else self.driver.rows_per_s

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last row at that rate; None if nobody works or the rate is unknown."""
        rate = self.rows_per_s
        return self.rows_left / rate if rate and self.state is RunState.RUNNING else None

    def as_dict(self) -> dict[str, Any]:
        """Everything, in JSON's types."""
        derived = ("rows_failed", "rows_left", "rows_per_s", "seconds_left")
        return asdict(self) | {name: getattr(self, name) for name in derived}


def read_status(output: str) -> RunStatus:
    """Look at a run directory; nothing in it is changed.

    Raises:
        JobConfigError: no run lies there.
        JobStoppedError: the storage failed.
    """
    name = display(without_secrets(output))
    with storage_errors(name):
        path = location(output)
        there = (path / MANIFEST).is_file()
    if not there:
        raise JobConfigError(
            f"{name}: no run of tokenmill lies there (no {MANIFEST}); give the output "
            "folder of a run"
        )
    manifest = Manifest.read(path / MANIFEST)
    if (path / SUCCESS).exists():
        return RunStatus(
            state=RunState.COMPLETE,
            num_rows=manifest.num_rows,
            rows_done=sum(part.num_rows for part in manifest.parts),
            errors=total_errors(manifest.parts),
            num_parts=len(manifest.parts),
            driver=None,
        )
    run = RunDirectory.look(path)
    state = RunState.RUNNING if _is_written(path) else RunState.STOPPED
    done, errors, num_parts = _count(run, manifest.cutting)
    return RunStatus(
        state=state,
        num_rows=manifest.num_rows,
        rows_done=done,
        errors=dict(errors),
        num_parts=num_parts,
        driver=next(reversed(read_journals(run.shards)), None),
    )


def _is_written(path: Location) -> bool:
    """Tell whether a living driver holds the folder; takes seconds in an object store."""
    return is_locked(path / LOCK) if isinstance(path, Path) else is_held(path)


def _count(run: RunDirectory, rule: CuttingRule) -> tuple[int, Counter[str], int]:
    """Rows, errors by kind and parts; looked at again while a shard disappears into a part."""
    for _ in range(_LOOKS - 1):
        try:
            return _count_once(run, rule)
        except FileNotFoundError:
            continue
    return _count_once(run, rule)


def _count_once(run: RunDirectory, rule: CuttingRule) -> tuple[int, Counter[str], int]:
    shards = run.shard_ranges()
    records = run.part_records()
    retry = Retry.read(run)
    written = {record.index for record in records if not retry.num_wanted(record)}
    open_shards = [rows for rows in shards if rule.part_of(rows.start) not in written]
    done = sum(part.num_rows - retry.num_wanted(part) for part in records)
    errors: Counter[str] = Counter()
    for record in records:
        errors.update(retry.kept_errors(record))
    for rows in open_shards:
        errors += _errors(run.shard_path(rows))
    return done + sum(map(len, open_shards)), errors, len(records)


def _errors(path: Location) -> Counter[str]:
    only = pa.ipc.IpcReadOptions(included_fields=[SHARD_SCHEMA.get_field_index("error_kind")])
    with path.open("rb") as file, pa.ipc.open_file(file, options=only) as reader:
        return count_errors(reader.read_all())

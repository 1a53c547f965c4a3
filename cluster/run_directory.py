"""The output folder of a run: what may lie there, who may write, what is committed.

The layout::

    part-00000.parquet ...   complete files in input order; all that readers of Parquet folders see
    _manifest.json           what the run is
    _lock                    held by the driver that writes here; gone when the run is finished
    _shards/                 committed shards, records of parts, journals of drivers and other work
                             in progress; gone when finished
    _stats/*.parquet         statistics, once finished
    _SUCCESS                 comes last
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final, Self

import pyarrow as pa

from .commit import (
    commit_json,
    committed_file,
    refuse_full,
    remove_files,
    remove_folder,
    remove_for_good,
    storage_errors,
    temporary_path,
)
from .errors import JobConfigError, JobStoppedError
from .input_files import display
from .lease import CLAIM_PREFIX, Lease
from .location import Location, location, named, without_secrets
from .lock import take_lock
from .manifest import Manifest, PartRecord

MANIFEST: Final = "_manifest.json"
LOCK: Final = "_lock"
SHARDS: Final = "_shards"
STATS: Final = "_stats"
SUCCESS: Final = "_SUCCESS"

# What a folder may hold and still count as empty: a run that ended before its first commit leaves
# the first two, macOS puts the third into every folder it shows.
_NOTHING: Final = {LOCK, temporary_path(Path(MANIFEST)).name, ".DS_Store"}


class RunDirectory:
    """The output folder, held by this process alone.

    Args:
        path: the folder.
        lock: the open lock file, which ends with the process, however it ends, or the lease. None
            for a folder that is only looked at.
        created: whether the folder was made for this run.

    Attributes:
        manifest: of the run that lies there; None before one has begun.
        is_complete: whether that run is finished.
    """

    def __init__(self, path: Location, lock: BinaryIO | Lease | None, *, created: bool) -> None:
        self.path = path
        self.manifest: Manifest | None = None
        self.is_complete = False
        self._lock = lock
        self._created = created

    @classmethod
    def claim(cls, output: str, tell: Callable[[str], None] = lambda _: None) -> "RunDirectory":
        """Make the folder if need be, lock it, and see whether a run lies in it.

        Args:
            output: path or URI of the folder.
            tell: told why this takes long.

        Raises:
            JobConfigError: it holds something else, another driver writes there, or it cannot be
                made. Nothing in it is changed then.
            JobStoppedError: its disk is full.
        """
        name = display(without_secrets(output))
        try:
            path = location(output)
            _refuse_foreign(path, name)
            created = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            lock = _hold(path, name, tell)
        except OSError as error:
            refuse_full(name, error)
            raise JobConfigError(
                f"{name}: the output folder cannot be written ({error.strerror or error}); "
                "choose another"
            ) from error
        run = cls(path, lock, created=created)
        try:
            if (path / MANIFEST).exists():
                run.manifest = Manifest.read(path / MANIFEST)
                run.is_complete = (path / SUCCESS).exists()
        except BaseException:
            lock.close()
            raise
        return run

    @classmethod
    def look(cls, path: Location) -> "RunDirectory":
        """Return a folder to read in, not held by this process."""
        return cls(path, None, created=False)

    @property
    def shards(self) -> Location:
        """Folder of the work in progress."""
        return self.path / SHARDS

    @property
    def stats(self) -> Location:
        """Folder of the statistics."""
        return self.path / STATS

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest: from here on the folder holds a run.

        Raises:
            JobStoppedError: the storage failed.
        """
        # First: folders without a manifest, left by a full disk, would be somebody else's.
        commit_json(self.path / MANIFEST, manifest.to_json())
        self.manifest = manifest
        self.make_folders()

    def make_folders(self) -> None:
        """Make the folders of a run that is not finished; a driver may have died before it could.

        Raises:
            JobStoppedError: the storage failed.
        """
        with storage_errors(self.path):
            self.shards.mkdir(exist_ok=True)
            self.stats.mkdir(exist_ok=True)

    def shard_path(self, rows: range) -> Location:
        """Return the file of a shard, named by its row ids so that names sort in row order."""
        return self.shards / f"rows-{rows.start:012d}-{rows.stop:012d}.arrow"

    def work_files(self, pattern: str) -> list[Location]:
        """Return the files of the work in progress whose names fit, in the order of names.

        Raises:
            JobStoppedError: the storage failed.
        """
        with storage_errors(self.path):
            return named(self.shards, pattern)

    def shard_ranges(self) -> list[range]:
        """Return the row ids of the committed shards, by their files' names, ascending."""
        names = [path.stem for path in self.work_files("rows-*.arrow")]
        return [range(*map(int, name.split("-")[1:])) for name in names]

    def record_path(self, index: int) -> Location:
        """Return the file of a part's record."""
        return self.shards / f"part-{index:05d}.json"

    def row_stats_path(self, index: int) -> Location:
        """Return the file of the statistics of a part's rows, until the run is finished."""
        return self.shards / f"stats-{index:05d}.arrow"

    def part_records(self) -> list[PartRecord]:
        """Return the records of the parts written so far, in order; damaged ones do not count.

        Raises:
            JobStoppedError: the storage failed.
        """
        files = self.work_files("part-*.json")
        with storage_errors(self.path):
            records = [PartRecord.read(file) for file in files]
        return [record for record in records if record is not None]

    def holds_part(self, record: PartRecord) -> bool:
        """Tell whether a part's file is the one that was recorded.

        Raises:
            JobStoppedError: the storage failed.
        """
        path = self.part_path(record.index)
        with storage_errors(self.path):
            if not path.exists() or path.stat().st_size != record.size:
                return False
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == record.sha256

    def temporaries(self) -> list[Location]:
        """Return the files that were being written when a driver was killed."""
        with storage_errors(self.path):
            folders = (self.path, self.shards, self.stats)
            return [path for folder in folders for path in folder.glob("_*.tmp")]

    def part_path(self, index: int) -> Location:
        """Return the file of a part."""
        return self.path / f"part-{index:05d}.parquet"

    def commit_shard(self, rows: range, table: pa.Table) -> None:
        """Commit a shard's table.

        Raises:
            JobStoppedError: the storage failed.
        """
        self.commit_arrow(self.shard_path(rows), table)

    def commit_arrow(self, path: Location, table: pa.Table) -> None:
        """Commit a table as an Arrow IPC file.

        Raises:
            JobStoppedError: the storage failed.
        """
        with committed_file(path) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def read_arrow(self, path: Location) -> pa.Table:
        """Read a committed Arrow IPC file.

        Raises:
            JobStoppedError: the storage does not give back what was committed.
        """
        try:
            return self._read_arrow(path)
        except pa.ArrowInvalid as error:
            raise JobStoppedError(
                f"{display(str(path))}: was committed and cannot be read ({error}); "
                "check the storage"
            ) from error

    def read_shard(self, rows: range) -> pa.Table | None:
        """Read a shard that an earlier driver committed; None if it is damaged.

        Raises:
            JobStoppedError: the storage failed.
        """
        try:
            return self._read_arrow(self.shard_path(rows))
        except pa.ArrowInvalid:
            return None

    def record_part(self, record: PartRecord) -> None:
        """Commit the record of a part that is in its place.

        Raises:
            JobStoppedError: the storage failed.
        """
        commit_json(self.record_path(record.index), asdict(record))

    def remove(self, files: Iterable[Location]) -> None:
        """Remove work in progress that is no longer needed.

        Raises:
            JobStoppedError: the storage failed.
        """
        with storage_errors(self.path):
            remove_files(files)

    def reopen(self) -> None:
        """Take the mark of a finished run away; what a running one needs has to be there.

        Raises:
            JobStoppedError: the storage failed.
        """
        with storage_errors(self.path):
            remove_for_good(self.path / SUCCESS)
        self.is_complete = False

    def finish(self, manifest: Manifest) -> None:
        """Mark the run as finished and remove what only a running one needs.

        Raises:
            JobStoppedError: the storage failed.
        """
        commit_json(self.path / MANIFEST, manifest.to_json())
        self.manifest = manifest
        with committed_file(self.path / SUCCESS):
            pass
        self.clean()

    def clean(self) -> None:
        """Remove what only a running job needs; again if a driver was killed over it.

        Raises:
            JobStoppedError: the storage failed.
        """
        self.is_complete = True
        with storage_errors(self.path):
            if self.shards.exists():
                remove_folder(self.shards)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the folder go; leave no trace if no run began."""
        if self.manifest is None or self.is_complete:
            with storage_errors(self.path):
                if isinstance(self.path, Path):
                    (self.path / LOCK).unlink(missing_ok=True)
                if self._created and not any(self.path.iterdir()):
                    self.path.rmdir()
        if self._lock is not None:
            self._lock.close()

    def _read_arrow(self, path: Location) -> pa.Table:
        with storage_errors(self.path), path.open("rb") as file, pa.ipc.open_file(file) as reader:
            return reader.read_all()


def _hold(path: Location, name: str, tell: Callable[[str], None]) -> BinaryIO | Lease:
    if isinstance(path, Path):
        return take_lock(path / LOCK, name)
    return Lease.take(path, name, tell)


def _refuse_foreign(path: Location, name: str) -> None:
    """Refuse anything but a new or empty folder or one of ours, before it is touched."""
    if not path.exists():
        return
    if not path.is_dir():
        raise JobConfigError(f"{name}: the output is not a folder; choose another")
    names = sorted(entry.name for entry in path.iterdir())
    others = [
        entry for entry in names if entry not in _NOTHING and not entry.startswith(CLAIM_PREFIX)
    ]
    if others and MANIFEST not in names:
        shown = ", ".join(display(entry) for entry in others[:3])
        raise JobConfigError(
            f"{name}: the output folder is not empty and not an output of tokenmill (it holds "
            f"{shown}{', ...' if len(others) > 3 else ''}); choose another folder"
        )
    if others:
        Manifest.read(path / MANIFEST)

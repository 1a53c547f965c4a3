"""The output folder of a run: what may lie there, who may write, what is committed.

The layout::

    part-00000.parquet ...   complete files in input order; all that readers of Parquet folders see
    _manifest.json           what the run is
    _lock                    held by the driver that writes here; gone when the run is finished
    _shards/                 committed shards and other work in progress; gone when finished
    _stats/*.parquet         statistics, once finished
    _SUCCESS                 comes last
"""

import fcntl
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final, Self

import pyarrow as pa

from .commit import (
    commit_json,
    committed_file,
    refuse_full,
    storage_errors,
    sync_folder,
    temporary_path,
)
from .errors import JobConfigError, JobStoppedError
from .input_files import display
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
        lock: the open lock file; the lock ends with the process, however it ends.
        created: whether the folder was made for this run.
    """

    def __init__(self, path: Path, lock: BinaryIO, *, created: bool) -> None:
        self.path = path
        self._lock = lock
        self._created = created
        self._begun = False

    @classmethod
    def claim(cls, output: str) -> "RunDirectory":
        """Make the folder if need be and lock it.

        Raises:
            JobConfigError: it holds something else, a finished or an unfinished run, another driver
                writes there, or it cannot be made. Nothing in it is changed then.
            JobStoppedError: its disk is full.
        """
        path = Path(output)
        name = display(output)
        try:
            _refuse_foreign(path, name)
            created = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / LOCK).open("ab")
        except OSError as error:
            refuse_full(path, error)
            raise JobConfigError(
                f"{name}: the output folder cannot be written ({error.strerror}); choose another"
            ) from error
        run = cls(path, lock, created=created)
        try:
            run._take_lock(name)
            _refuse_earlier_run(path, name)
        except BaseException:
            lock.close()
            raise
        return run

    @property
    def shards(self) -> Path:
        """Folder of the work in progress."""
        return self.path / SHARDS

    @property
    def stats(self) -> Path:
        """Folder of the statistics."""
        return self.path / STATS

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest: from here on the folder holds a run.

        Raises:
            JobStoppedError: the storage failed.
        """
        # First: folders without a manifest, left by a full disk, would be somebody else's.
        commit_json(self.path / MANIFEST, manifest.to_json())
        self._begun = True
        with storage_errors(self.path):
            self.shards.mkdir(exist_ok=True)
            self.stats.mkdir(exist_ok=True)

    def shard_path(self, rows: range) -> Path:
        """Return the file of a shard, named by its row ids so that names sort in row order."""
        return self.shards / f"rows-{rows.start:012d}-{rows.stop:012d}.arrow"

    def part_path(self, index: int) -> Path:
        """Return the file of a part."""
        return self.path / f"part-{index:05d}.parquet"

    def commit_shard(self, rows: range, table: pa.Table) -> None:
        """Commit a shard's table.

        Raises:
            JobStoppedError: the storage failed.
        """
        self.commit_arrow(self.shard_path(rows), table)

    def commit_arrow(self, path: Path, table: pa.Table) -> None:
        """Commit a table as an Arrow IPC file.

        Raises:
            JobStoppedError: the storage failed.
        """
        with committed_file(path) as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def read_arrow(self, path: Path) -> pa.Table:
        """Read a committed Arrow IPC file.

        Raises:
            JobStoppedError: the storage does not give back what was committed.
        """
        try:
            with (
                storage_errors(self.path),
                path.open("rb") as file,
                pa.ipc.open_file(file) as reader,
            ):
                return reader.read_all()
        except pa.ArrowInvalid as error:
            raise JobStoppedError(
                f"{display(str(path))}: was committed and cannot be read ({error}); "
                "check the storage"
            ) from error

    def record_part(self, record: PartRecord) -> None:
        """Commit the record of a part; from here on the part is trusted.

        Raises:
            JobStoppedError: the storage failed.
        """
        commit_json(self.shards / f"part-{record.index:05d}.json", asdict(record))

    def remove(self, files: Iterable[Path]) -> None:
        """Remove work in progress that is no longer needed.

        Raises:
            JobStoppedError: the storage failed.
        """
        with storage_errors(self.path):
            for file in files:
                file.unlink(missing_ok=True)

    def finish(self, manifest: Manifest) -> None:
        """Mark the run as finished and remove what only a running one needs.

        Raises:
            JobStoppedError: the storage failed.
        """
        commit_json(self.path / MANIFEST, manifest.to_json())
        with committed_file(self.path / SUCCESS):
            pass
        with storage_errors(self.path):
            shutil.rmtree(self.shards)
            (self.path / LOCK).unlink(missing_ok=True)
            sync_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the folder go; leave no trace if no run began."""
        if not self._begun:
            with storage_errors(self.path):
                (self.path / LOCK).unlink(missing_ok=True)
                if self._created and not any(self.path.iterdir()):
                    self.path.rmdir()
        self._lock.close()

    def _take_lock(self, name: str) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobConfigError(
                f"{name}: another driver is writing to this output folder; "
                "wait for it or choose another folder"
            ) from None
        except OSError as error:
            raise JobConfigError(
                f"{name}: the output folder cannot be locked ({error.strerror}); choose one on a "
                "local disk"
            ) from error


def _refuse_foreign(path: Path, name: str) -> None:
    """Refuse anything but a new or empty folder or one of ours, before it is touched."""
    if not path.exists():
        return
    if not path.is_dir():
        raise JobConfigError(f"{name}: the output is not a folder; choose another")
    names = sorted(os.listdir(path))  # noqa: PTH208 - names are all that is needed
    others = [entry for entry in names if entry not in _NOTHING]
    if others and MANIFEST not in names:
        shown = ", ".join(display(entry) for entry in others[:3])
        raise JobConfigError(
            f"{name}: the output folder is not empty and not an output of tokenmill (it holds "
            f"{shown}{', ...' if len(others) > 3 else ''}); choose another folder"
        )
    if others:
        Manifest.read(path / MANIFEST)


def _refuse_earlier_run(path: Path, name: str) -> None:
    if (path / SUCCESS).exists():
        (path / LOCK).unlink(missing_ok=True)
        raise JobConfigError(
            f"{name}: the output folder holds a complete run; choose another folder, "
            "or delete this one to run again"
        )
    if (path / MANIFEST).exists():
        raise JobConfigError(
            f"{name}: the output folder holds an unfinished run, and this release cannot go on "
            "with one; choose another folder, or delete this one to run again"
        )

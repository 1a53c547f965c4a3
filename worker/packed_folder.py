"""The folder of packed files: what is in it, what may go, and how much it may hold."""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .cache_folder import cache_folder
from .file_in_use import hold_exclusive
from .file_lock import file_lock
from .packed_index import UnsoundPackedFileError, read_index

SUFFIX = ".packed"
TEMPORARY_PREFIX = ".writing-"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackedFileInfo:
    """One packed file.

    Attributes:
        path: of the file.
        n_bytes: its size.
        last_used_s: when a process last opened it, in seconds since 1970.
        model: name of the model file it was made from; None when its header cannot be read.
        in_use: whether a process has it mapped.
    """

    path: Path
    n_bytes: int
    last_used_s: float
    model: str | None
    in_use: bool


class NoRoomError(OSError):
    """A packed file is larger than the limit, or all the others are in use."""


class PackedFolder:
    """Packed files in the cache folder, with a bound on their size.

    Attributes:
        path: the folder; it need not exist.
    """

    path: Path

    def __init__(self) -> None:
        self.path = cache_folder() / "packed"
        self._limit_file = cache_folder() / "packed-limit.json"

    def path_of(self, key: str) -> Path:
        """Give the path of the packed file of this key."""
        return self.path / f"{key}{SUFFIX}"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that writes a packed file; waits for the one that does.

        Raises:
            OSError: the folder cannot be used.
        """
        with file_lock(self.path / ".lock", "to write packed weights"):
            # The lock is held, so what a killed process was writing is nobody's.
            for leftover in self.path.glob(f"{TEMPORARY_PREFIX}*"):
                leftover.unlink()
            yield

    def files(self) -> list[PackedFileInfo]:
        """List the packed files, the one used last first.

        Raises:
            OSError: the folder cannot be read.
        """
        found = [_look_at(path) for path in self.path.glob(f"*{SUFFIX}")]
        there = [info for info in found if info is not None]
        return sorted(there, key=lambda info: -info.last_used_s)

    def make_room(self, n_bytes: int) -> None:
        """Remove the files that were used least recently until this many bytes may be added.

        Raises:
            NoRoomError: the limit does not allow it.
            OSError: a file cannot be removed.
        """
        limit, files = self.limit(), self.files()
        held = sum(info.n_bytes for info in files)
        fixed = sum(info.n_bytes for info in files if info.in_use)
        if fixed + n_bytes > limit:
            used = f", of which {fixed:,} are in use" if fixed else ""
            fix = "free disk space, or set a limit" if self.chosen_limit() is None else "raise it"
            raise NoRoomError(
                f"{n_bytes:,} bytes are more than packed files may take, {limit:,} in all{used}; "
                f"{fix} with `tokenmill cache limit SIZE`"
            )
        for info in reversed(files):
            if held + n_bytes > limit and remove_unused(info.path):
                _log.info("removed %s to make room", info.path)
                held -= info.n_bytes

    def limit(self) -> int:
        """Give the most bytes that packed files may take together.

        Unless one was set, half of what is free on their disk, they themselves counted as free.
        """
        chosen = self.chosen_limit()
        if chosen is not None:
            return chosen
        folder = next(folder for folder in (self.path, *self.path.parents) if folder.exists())
        held = sum(path.stat().st_size for path in self.path.glob(f"*{SUFFIX}"))
        return (shutil.disk_usage(folder).free + held) // 2

    def chosen_limit(self) -> int | None:
        """Give the limit that was set, in bytes; None when there is none."""
        try:
            chosen = json.loads(self._limit_file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("%s cannot be read (%s): set the limit again", self._limit_file, error)
            return None
        return chosen if isinstance(chosen, int) else None

    def set_limit(self, n_bytes: int | None) -> None:
        """Keep a limit for all processes from now on; None goes back to the default.

        Raises:
            OSError: the cache folder cannot be written.
        """
        if n_bytes is None:
            self._limit_file.unlink(missing_ok=True)
            return
        folder = self._limit_file.parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".tmp-", delete=False) as file:
            json.dump(n_bytes, file)
        Path(file.name).replace(self._limit_file)  # whole at every instant, for those who read it


def remove_unused(path: Path) -> bool:
    """Remove a file unless a process has it in use; False then.

    Raises:
        OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if not hold_exclusive(file):
            return False
        path.unlink()
    return True  # also when somebody else has removed it


def _look_at(path: Path) -> PackedFileInfo | None:
    """Describe a file; None when another process has just removed it."""
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            try:
                model = read_index(file, stat.st_size).model
            except UnsoundPackedFileError:
                model = None
            in_use = not hold_exclusive(file)
    except FileNotFoundError:
        return None
    return PackedFileInfo(path, stat.st_size, stat.st_mtime, model, in_use)

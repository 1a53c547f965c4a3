"""Files that appear whole or not at all, and survive a power cut once they are there."""

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Final

from .errors import JobStoppedError
from .input_files import display
from .location import Location
from .object_path import ObjectPath

_NO_SPACE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync leaves the cache


class HashingFile(io.RawIOBase):
    """A file open for writing that keeps the SHA-256 and the size of what went through it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        """Tell that the file can be written to."""
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer, as io declares it
        """Write all of ``data``."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the position, which is always the end."""
        return self.size

    @property
    def sha256(self) -> str:
        """SHA-256 of all bytes written so far, in hexadecimal."""
        return self._digest.hexdigest()


@contextmanager
def committed_file(target: Location) -> Iterator[HashingFile]:
    """Open a file that is there under its name, whole, on leaving without error, and never before.

    Raises:
        JobStoppedError: no space is left, or the storage is gone; what was committed stays.
    """
    with _renamed(target) if isinstance(target, Path) else _uploaded(target) as file:
        yield file


@contextmanager
def _renamed(target: Path) -> Iterator[HashingFile]:
    """Write under a temporary name: write, fsync, rename, fsync of the folder.

    The temporary name starts with an underscore and does not end like a data file, so no reader
    takes it for one. After an error it is removed, the final name is untouched.
    """
    temporary = temporary_path(target)
    with storage_errors(target.parent):
        try:
            with temporary.open("wb") as file:
                yield HashingFile(file)
                file.flush()
                sync(file.fileno())
            temporary.rename(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)


@contextmanager
def _uploaded(target: ObjectPath) -> Iterator[HashingFile]:
    """Write into a nameless file of this machine, then put it into the store at once.

    pyarrow can not give up an upload: what was sent when an error comes up would be the object.
    """
    with tempfile.TemporaryFile() as spool:
        with storage_errors(Path(tempfile.gettempdir())):
            file = HashingFile(spool)
            yield file
            spool.flush()
        data = mmap(spool.fileno(), 0, access=ACCESS_READ) if file.size else b""
        with storage_errors(target.parent):
            target.put(data)


def temporary_path(target: Path) -> Path:
    """Return the name under which a file is written before it is committed."""
    return target.with_name(f"_{target.name.removeprefix('_')}.tmp")


def commit_json(target: Location, document: object) -> None:
    """Commit a JSON document; what JSON has no type for (a date, say) becomes its text.

    Raises:
        JobStoppedError: as ``committed_file``.
    """
    with committed_file(target) as file:
        file.write(json.dumps(document, indent=1, default=str).encode())


@contextmanager
def storage_errors(folder: Location | str) -> Iterator[None]:
    """Turn what the output's storage can do to us into a stop that names the folder.

    Raises:
        JobStoppedError: an OSError came up inside.
    """
    try:
        yield
    except OSError as error:
        where = display(str(folder))
        refuse_full(where, error)
        reason = error.strerror or str(error)
        raise JobStoppedError(
            f"{where}: cannot be written any more ({reason}); committed rows are kept, "
            "check the storage"
        ) from error


def refuse_full(name: str, error: OSError) -> None:
    """Do nothing unless the error says that the disk is full.

    Args:
        name: the folder, for the message.
        error: what came up.

    Raises:
        JobStoppedError: it does; the folder is named.
    """
    if error.errno in _NO_SPACE:
        raise JobStoppedError(
            f"{name}: no space left ({error.strerror}); committed rows are kept, make room"
        ) from error


def remove_files(files: Iterable[Location]) -> None:
    """Remove files of one folder; one that is not there does not matter.

    Raises:
        OSError: the storage failed.
    """
    objects = []
    for file in files:
        if isinstance(file, Path):
            file.unlink(missing_ok=True)
        else:
            objects.append(file)
    if objects:
        objects[0].store.remove(file.key for file in objects)


def remove_for_good(file: Location) -> None:
    """Remove a file, so that it stays removed after a power cut.

    Raises:
        OSError: the storage failed.
    """
    remove_files([file])
    if isinstance(file, Path):
        sync_folder(file.parent)


def move_file(source: Location, target: Location) -> None:
    """Give a file of a folder another name there, in place of the file that has it.

    An object is put under its new name before it goes; a kill in between leaves both.

    Raises:
        OSError: the storage failed.
    """
    if isinstance(source, Path) and isinstance(target, Path):
        source.rename(target)
        sync_folder(target.parent)
    elif isinstance(source, ObjectPath) and isinstance(target, ObjectPath):
        target.put(source.read_bytes())
        remove_files([source])


def remove_folder(folder: Location) -> None:
    """Remove a folder and all in it.

    Raises:
        OSError: the storage failed.
    """
    if isinstance(folder, Path):
        shutil.rmtree(folder)
        sync_folder(folder.parent)
    else:
        folder.remove_tree()


def sync(descriptor: int) -> None:
    """Bring a file's bytes to the disk itself."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):  # network volumes lack it
                raise
        else:
            return
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files that appear whole or not at all, and survive a power cut once they are there."""

import errno
import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from .errors import JobStoppedError
from .input_files import display

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
def committed_file(target: Path) -> Iterator[HashingFile]:
    """Open a file under a temporary name; on leaving without error it gets its final one.

    The order is write, fsync, rename, fsync of the folder. The temporary name starts with an
    underscore and does not end like a data file, so no reader takes it for one. After an error it
    is removed, the final name is untouched.

    Raises:
        JobStoppedError: no space is left, or the storage is gone; what was committed stays.
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


def temporary_path(target: Path) -> Path:
    """Return the name under which a file is written before it is committed."""
    return target.with_name(f"_{target.name.removeprefix('_')}.tmp")


def commit_json(target: Path, document: object) -> None:
    """Commit a JSON document; what JSON has no type for (a date, say) becomes its text.

    Raises:
        JobStoppedError: as ``committed_file``.
    """
    with committed_file(target) as file:
        file.write(json.dumps(document, indent=1, default=str).encode())


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Turn what the output's storage can do to us into a stop that names the folder.

    Raises:
        JobStoppedError: an OSError came up inside.
    """
    try:
        yield
    except OSError as error:
        refuse_full(folder, error)
        where = display(str(folder))
        reason = error.strerror or str(error)
        raise JobStoppedError(
            f"{where}: cannot be written any more ({reason}); committed rows are kept, "
            "check the storage"
        ) from error


def refuse_full(folder: Path, error: OSError) -> None:
    """Do nothing unless the error says that the disk is full.

    Raises:
        JobStoppedError: it does; the folder is named.
    """
    if error.errno in _NO_SPACE:
        raise JobStoppedError(
            f"{display(str(folder))}: no space left ({error.strerror}); committed rows are kept, "
            "make room"
        ) from error


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

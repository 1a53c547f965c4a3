"""A read-only memory map of a whole file."""

import mmap
import os
import stat
import weakref
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from worker.errors import GGUFError
from worker.file_hash import open_file_sha256
from worker.file_identity import FileIdentity

from .wording import shown


class MappedFile:
    """A file mapped for reading; its pages come from disk when they are touched.

    Views of ``bytes`` keep the map alive after the MappedFile is gone.

    Attributes:
        path: as given.
        size: bytes of the file when it was opened.
        identity: which version of which file it is.
        bytes: uint8 [size], read-only.
        view: the same as a memoryview, which struct reads faster.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            GGUFError: it is missing, unreadable, empty, or no regular file.
        """
        self.path = path
        with _open_regular(path) as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size == 0:
                raise GGUFError(
                    f"{path}: the file is empty (0 bytes); copy or download the file again"
                )
            self.identity = FileIdentity.of_open(path, file)
            self._written_ns = os.fstat(file.fileno()).st_mtime_ns
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        # The file may have grown or shrunk between the two calls: the map decides.
        self.size = len(self._map)
        self.view = memoryview(self._map)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)

    def check_unchanged(self) -> None:
        """Check that the file is still the one that was opened, before its pages are read.

        A page that is no longer in the file would end the process by a signal, and one that was
        written anew belongs to another model. A file put in its place under the same name does no
        harm: the map keeps the old one.

        Raises:
            GGUFError: it was cut, extended or written to.
        """
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._written_ns):
            raise GGUFError(
                f"{self.path}: the file was changed while it was in use: {self.size} bytes when it "
                f"was opened, {now.st_size} bytes and written to since; restore it and start again"
            )

    def read(self, start: int, n_bytes: int) -> bytes:
        """Read a few bytes without touching the map.

        Raises:
            GGUFError: they cannot be read, or the file ends before.
        """
        try:
            data = os.pread(self._descriptor, n_bytes, start)
        except OSError as error:
            raise GGUFError(f"{self.path}: cannot be read: {_reason(self.path, error)}") from error
        if len(data) < n_bytes:
            raise GGUFError(
                f"{self.path}: the file was cut while it was in use: {self.size} bytes when it was "
                f"opened, {start + len(data)} bytes now; restore it and start again"
            )
        return data

    def sha256(self) -> str:
        """Hash the file that is mapped, in lower-case hexadecimal; remembered in the cache folder.

        Raises:
            GGUFError: it cannot be read.
        """
        try:
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                return open_file_sha256(self.path, file)
        except OSError as error:
            raise GGUFError(f"{self.path}: cannot be read: {_reason(self.path, error)}") from error

    def release(self, start: int, n_bytes: int) -> None:
        """Give whole pages inside the range back to the system; reading them maps them again."""
        page = mmap.PAGESIZE
        first = -(-start // page) * page
        last = (start + n_bytes) // page * page
        if last > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _open_regular(path: Path) -> BinaryIO:
    try:
        # A pipe would block open() for ever, so the kind is asked for first.
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except OSError as error:
        raise GGUFError(f"{path}: cannot be opened: {_reason(path, error)}") from error
    if stat.S_ISDIR(mode):
        raise GGUFError(f"{path}: this is a folder, not a GGUF file; {_files_inside(path)}")
    raise GGUFError(f"{path}: this is no regular file; a GGUF file on a disk is needed")


def _reason(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return f"it is a link to {path.readlink()}, which does not exist; fetch the file again"
        return "no such file; check the path"
    if isinstance(error, PermissionError):
        return "no permission to read it; change its permissions (chmod +r)"
    return f"{error.strerror or error}; check the path and the disk"


def _files_inside(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    except OSError as error:
        return f"its content cannot be listed ({error.strerror})"
    if not names:
        return "there is no .gguf file in it; name the model file itself"
    listed = ", ".join(shown(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return f"name one of the files in it: {listed}"

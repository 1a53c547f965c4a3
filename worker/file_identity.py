"""Which file something was derived from: the key of everything the cache folder keeps about it."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True)
class FileIdentity:
    """One version of one file, as far as its directory entry tells.

    Who rewrites a file changes at least one of these, unless they set the time back on purpose.

    Attributes:
        path: absolute, with symbolic links resolved.
        size: bytes.
        mtime_ns: time of the last modification, in nanoseconds.
        inode: number of the file on its disk.
    """

    path: Path
    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path | str) -> "FileIdentity":
        """Look a file up.

        Raises:
            OSError: there is no such file.
        """
        return cls._from_stat(Path(path), Path(path).stat())

    @classmethod
    def of_open(cls, path: Path | str, file: BinaryIO) -> "FileIdentity":
        """Look an open file up, so that no other can have taken its name meanwhile."""
        return cls._from_stat(Path(path), os.fstat(file.fileno()))

    @classmethod
    def _from_stat(cls, path: Path, stat: os.stat_result) -> "FileIdentity":
        return cls(path.resolve(), stat.st_size, stat.st_mtime_ns, stat.st_ino)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all four, in lower-case hexadecimal: a name for what is kept of the file."""
        words = (os.fsencode(self.path).hex(), self.size, self.mtime_ns, self.inode)
        return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()

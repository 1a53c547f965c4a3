"""SHA-256 of large files, computed once for each version of a file."""

import hashlib
import logging
import os
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from .cache_folder import cache_folder
from .checked_file import read_checked, write_checked
from .file_identity import FileIdentity

_log = logging.getLogger(__name__)


def file_sha256(path: Path | str) -> str:
    """Hash a file, in lower-case hexadecimal.

    The result is kept in the cache folder and used again as long as path, size, modification
    time and inode are the same.

    Raises:
        OSError: the file cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        return open_file_sha256(path, file)


def open_file_sha256(path: Path, file: BufferedReader) -> str:
    """Hash an open file, as `file_sha256`, whatever has taken its name meanwhile.

    Raises:
        OSError: the file cannot be read.
    """
    identity = FileIdentity.of_open(path, file)
    record = _record_of(identity)
    known = _recall(record, identity)
    if known is not None:
        return known
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if FileIdentity.of_open(path, file) == identity:
        _remember(record, identity, digest)
    return digest


def remember_sha256(path: Path, digest: str) -> None:
    """Keep a hash that was just worked out from the bytes of a file, so that nobody does it again.

    Raises:
        OSError: there is no such file.
    """
    identity = FileIdentity.of(path)
    _remember(_record_of(identity), identity, digest)


def joint_sha256(hashes: Sequence[str]) -> str:
    """Hash a model of one or more files from its files' hashes.

    That of one file is the model's own; those of several are hashed again, one a line.
    """
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(f"{each}\n" for each in hashes).encode()).hexdigest()


def _record_of(identity: FileIdentity) -> Path:
    return cache_folder() / "hashes" / hashlib.sha256(os.fsencode(identity.path)).hexdigest()


def _recall(record: Path, identity: FileIdentity) -> str | None:
    try:
        content = read_checked(record)
    except OSError as error:
        _log.warning("cannot look up the hash of a file in %s: %s", record.parent, error)
        return None
    if content is None:
        return None
    key, digest = content.decode("ascii").split()
    return digest if key == identity.digest else None


def _remember(record: Path, identity: FileIdentity, digest: str) -> None:
    try:
        write_checked(record, f"{identity.digest} {digest}".encode("ascii"))
    except OSError as error:
        # Only time is lost: a model on a read-only disk must still run.
        _log.warning("cannot remember the hash of a file in %s: %s", record.parent, error)

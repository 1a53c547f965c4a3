"""SHA-256 of large files, computed once for each version of a file."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path

from .cache_folder import cache_folder

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
    path = path.absolute()
    state = _state(path, file)
    record = cache_folder() / "hashes" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"
    known = _recall(record, state)
    if known is not None:
        return known
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _state(path, file) == state:
        _remember(record, state, digest)
    return digest


def joint_sha256(hashes: Sequence[str]) -> str:
    """Hash a model of one or more files from its files' hashes.

    That of one file is the model's own; those of several are hashed again, one a line.
    """
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(f"{each}\n" for each in hashes).encode()).hexdigest()


def _state(path: Path, file: BufferedReader) -> dict[str, int | str]:
    stat = os.fstat(file.fileno())
    return {
        "path": os.fsencode(path).hex(),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "inode": stat.st_ino,
    }


def _recall(record: Path, state: dict[str, int | str]) -> str | None:
    try:
        known = json.loads(record.read_bytes())
    except (OSError, ValueError):
        return None  # no record, or one that a full disk cut short: hash the file again
    if not isinstance(known, dict) or known != {**state, "sha256": known.get("sha256")}:
        return None
    digest = known["sha256"]
    return digest if isinstance(digest, str) else None


def _remember(record: Path, state: dict[str, int | str], digest: str) -> None:
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=record.parent, prefix=".tmp-", delete=False
        ) as file:
            json.dump({**state, "sha256": digest}, file)
        Path(file.name).replace(record)
    except OSError as error:
        # Only time is lost: a model on a read-only disk must still run.
        _log.warning("cannot remember the hash of a file in %s: %s", record.parent, error)

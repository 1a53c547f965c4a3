"""Models that another machine sent, in the cache folder under their hash.

``received/SHA256/`` holds a whole model and nothing else; what is still coming is in
``received/.partial-SHA256/`` and is gone on with by whoever wants the same model next.
"""

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from .cache_folder import cache_folder
from .errors import ModelError, ModelSourceError
from .file_hash import joint_sha256, remember_sha256
from .file_lock import file_lock
from .folder_sync import sync_folder
from .huggingface.folder import folder_sha256
from .model_source import model_sha256

_log = logging.getLogger(__name__)

FOLDER: Final = "received"
PARTIAL_PREFIX: Final = ".partial-"
_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SentFile:
    """One file of a model.

    Attributes:
        path: below the model's folder, with slashes; of at most two names.
        n_bytes: its size.
        sha256: its hash, in lower-case hexadecimal.
    """

    path: str
    n_bytes: int
    sha256: str


class ModelSender(Protocol):
    """Where the bytes of a model come from."""

    def files(self) -> Sequence[SentFile]:
        """List the model's files, the one to open first."""

    def chunks(self, index: int, start: int, end: int) -> Iterator[bytes]:
        """Give bytes ``start`` to ``end`` of a file in order, a bounded piece at a time.

        Raises:
            ModelSourceError: the sender is gone, or cannot read the file.
        """


def received_model(sha256: str) -> Path | None:
    """Give the path of a model that was received before; None if it is not there or damaged."""
    folder = _root() / sha256
    if not folder.is_dir():
        return None
    try:
        path = min(folder.iterdir(), default=None)  # the one folder in it, or its first file
        if path is not None and model_sha256(path) == sha256:
            return path
    except (ModelError, OSError) as error:
        _log.warning("%s is not used: %s", folder, error)
        return None
    _log.warning("%s is not used: it is damaged", folder)
    return None


def receive_model(sha256: str, sender: ModelSender) -> Path:
    """Give the path of a model on this machine, taking what is missing of it from a sender.

    It appears whole and checked or not at all. Processes that want the same one receive it once,
    and one that was ended leaves what it had got.

    Args:
        sha256: what ``model_sha256`` of the whole must be.
        sender: who has it.

    Raises:
        ModelSourceError: the sender fails, has another model, or the disk has no room.
    """
    root = _root()
    try:
        with file_lock(root / f".lock-{sha256}", "to receive a model"):
            known = received_model(sha256)  # another process may have received it meanwhile
            return known or _receive(root, sha256, sender)
    except OSError as error:
        raise ModelSourceError(
            f"the model cannot be received into {error.filename or root}: "
            f"{error.strerror or error}; check the disk's free space and permissions"
        ) from error


def _root() -> Path:
    return cache_folder() / FOLDER


def _receive(root: Path, sha256: str, sender: ModelSender) -> Path:
    files = sender.files()
    for file in files:
        _check_name(file.path)
    if _joint_sha256(files) != sha256:
        raise _changed("the model", sha256)
    partial = root / f"{PARTIAL_PREFIX}{sha256}"
    _check_space(partial, files)
    for index, file in enumerate(files):
        _receive_file(partial / file.path, index, file, sender)
    target = root / sha256
    if target.exists():
        shutil.rmtree(target)  # damaged, or the lock's holder would have taken it
    partial.replace(target)
    sync_folder(root)
    for file in files:
        remember_sha256(target / file.path, file.sha256)
    path = received_model(sha256)
    if path is None:
        raise _changed("the model", sha256)
    return path


def _joint_sha256(files: Sequence[SentFile]) -> str:
    hashes = [file.sha256 for file in files]
    return folder_sha256(hashes) if "/" in files[0].path else joint_sha256(hashes)


def _changed(what: str, sha256: str) -> ModelSourceError:
    return ModelSourceError(
        f"{what}: what the driver sends has not the SHA-256 {sha256}; its file was changed while "
        "the job was running: start again"
    )


def _check_name(path: str) -> None:
    """Refuse a name that leads out of the model's folder."""
    parts = path.split("/")
    if len(parts) > 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ModelSourceError(f"the driver sent a file named {path!r}, which is no plain name")


def _check_space(partial: Path, files: Sequence[SentFile]) -> None:
    partial.mkdir(parents=True, exist_ok=True)
    there = sum(_size(partial / file.path) for file in files)
    needed = max(0, sum(file.n_bytes for file in files) - there)
    free = shutil.disk_usage(partial).free
    if needed > free:
        raise ModelSourceError(
            f"{partial.parent}: the model needs {needed:,} more bytes and {free:,} are free; free "
            "disk space, or set TOKENMILL_CACHE to a folder on another disk"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _receive_file(path: Path, index: int, file: SentFile, sender: ModelSender) -> None:
    """Bring a file to its full length; from its beginning if what was there before is damaged."""
    path.parent.mkdir(exist_ok=True)
    resumed = _size(path)
    if _append(path, index, file, sender) == file.sha256:
        return
    path.unlink()
    if resumed:
        _log.warning("%s is not what was sent; receiving it from the beginning", path)
        if _append(path, index, file, sender) == file.sha256:
            return
        path.unlink()
    raise _changed(file.path, file.sha256)


def _append(path: Path, index: int, file: SentFile, sender: ModelSender) -> str:
    """Write what is missing of a file; the SHA-256 of the whole."""
    with path.open("a+b") as out:
        if out.tell() > file.n_bytes:
            out.truncate(0)
        digest = _digest_of(out)
        offset = out.seek(0, os.SEEK_END)
        if offset < file.n_bytes:
            for chunk in sender.chunks(index, offset, file.n_bytes):
                out.write(chunk)
                digest.update(chunk)
                out.flush()  # its size is a sign of life, and what a successor goes on with
        os.fsync(out.fileno())
    return digest.hexdigest()


def _digest_of(file: BinaryIO) -> "hashlib._Hash":
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_READ_BYTES):
        digest.update(block)
    return digest

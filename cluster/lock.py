"""The lock of an output folder: one driver writes, and a second one is told who.

It is an advisory lock of the operating system on a file that also says who holds it; it ends with
its process, however that ends.
"""

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, BinaryIO, Final

from .errors import JobConfigError

_PATIENCE_S: Final = 1.0  # `tokenmill status` holds the lock for an instant to see if it is free


def take_lock(path: Path, name: str) -> BinaryIO:
    """Lock a file, making it if need be, and write into it who we are.

    Args:
        path: the lock file.
        name: the output folder, for messages.

    Returns:
        The open file; closing it lets the lock go.

    Raises:
        JobConfigError: another process holds it, or the file system has no locks.
        OSError: the file cannot be opened or written.
    """
    deadline = monotonic() + _PATIENCE_S
    while True:
        file = path.open("a+b")
        try:
            if _try_lock(file, name) and _is_at(path, file):
                _write_holder(file)
                return file
            if monotonic() > deadline:
                raise JobConfigError(
                    f"{name}: another driver is writing to this output folder{_holder(file)}; "
                    "wait for it or choose another folder"
                )
        except BaseException:
            file.close()
            raise
        file.close()
        sleep(_PATIENCE_S / 20)


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def this_process() -> dict[str, Any]:
    """Return what a driver says of itself: host, pid, and when it said so (UTC)."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": now}


def _try_lock(file: BinaryIO, name: str) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise JobConfigError(
            f"{name}: the output folder cannot be locked ({error.strerror}); choose one on a "
            "local disk"
        ) from error
    return True


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Tell whether the locked file is still the one at its path: its last holder may remove it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _write_holder(file: BinaryIO) -> None:
    file.truncate(0)
    file.write(json.dumps(this_process()).encode())
    file.flush()


def _holder(file: BinaryIO) -> str:
    """Say who holds the lock, if it could be written down."""
    file.seek(0)
    try:
        holder = json.loads(file.read())
        return f" (on {holder['host']}, pid {holder['pid']}, since {holder['started']})"
    except (ValueError, KeyError, TypeError):
        return ""

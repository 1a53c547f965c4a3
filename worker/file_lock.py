"""A lock between the processes of one machine."""

import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_log = logging.getLogger(__name__)


NOTICE_AFTER_S = 3.0
"""How long a wait goes on without a word."""

_told: set[Path] = set()
"""Locks whose wait was told; one is told once a process, however often it is taken."""


_awaited: list[Path] = []
"""Locks that threads of this process wait for now."""


@contextmanager
def file_lock(path: Path, purpose: str = "to be alone") -> Iterator[None]:
    """Hold the lock file exclusively; waits for the process that holds it.

    The first wait of some seconds is told, with the process and its purpose (``to ...``).

    The system lets go of the lock when its holder ends in whatever way, so a file left behind
    blocks nobody. The file stays: removing it would let two processes lock different files of
    one name.

    Raises:
        OSError: the folder cannot be written to, or its disk knows no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _wait(file, path, purpose)
        _sign(file)
        yield


def _wait(file: IO[bytes], path: Path, purpose: str) -> None:
    notice = threading.Timer(NOTICE_AFTER_S, _tell, (path, purpose))
    notice.daemon = True
    notice.start()
    _awaited.append(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    finally:
        _awaited.remove(path)
        notice.cancel()


def awaited_holders() -> set[int]:
    """Processes that hold what threads of this one wait for, as far as they are known."""
    holders = (_holder(path) for path in tuple(_awaited))
    return {int(holder) for holder in holders if holder.isdecimal()}


def _holder(path: Path) -> str:
    return path.read_text(errors="replace")


def _tell(path: Path, purpose: str) -> None:
    if path in _told:
        return
    _told.add(path)
    holder = _holder(path)
    process = f"process {holder}" if holder else "another process"
    _log.warning("waiting for %s, which holds %s %s", process, path, purpose)


def _sign(file: IO[bytes]) -> None:
    """Write down which process holds the lock."""
    with contextlib.suppress(OSError):  # on a full disk others wait for "another" process
        file.truncate(0)
        file.write(str(os.getpid()).encode())

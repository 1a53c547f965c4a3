"""Marks on files that a process has mapped, so that another one does not remove them."""

import fcntl
from pathlib import Path
from typing import IO, Any


def hold_shared(file: IO[Any]) -> None:
    """Say that an open file is in use, for as long as it, or a map of it, is open.

    Waits while another process has it exclusively. The system takes the mark away when the
    process ends in whatever way.

    Raises:
        OSError: the file lies on a disk that knows no locks.
    """
    fcntl.flock(file, fcntl.LOCK_SH)


def hold_exclusive(file: IO[Any]) -> bool:
    """Take an open file for oneself until it is closed; False when anybody has it in use.

    Raises:
        OSError: the file lies on a disk that knows no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_use(path: Path) -> bool:
    """Tell whether anybody has a file in use, or is about to remove it.

    Raises:
        OSError: it cannot be opened, or lies on a disk that knows no locks.
    """
    with path.open("rb") as file:
        return not hold_exclusive(file)

"""A lock between the processes of one machine."""

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_log = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold the lock file exclusively; waits for the process that holds it.

    The system lets go of the lock when its holder ends in whatever way, so a file left behind
    blocks nobody. The file stays: removing it would let two processes lock different files of
    one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("waiting for another process that holds %s", path)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield

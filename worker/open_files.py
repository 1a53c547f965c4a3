"""Which files the processes of this machine have open, as far as this user may know."""

import contextlib
from pathlib import Path

import psutil


def open_files() -> set[Path]:
    """Collect the open regular files of all processes, links resolved.

    Processes of other users hide theirs unless this one may look at everything.
    """
    found: set[Path] = set()
    for process in psutil.process_iter():
        # Between listing and looking a process may end; others are not ours to look at.
        with contextlib.suppress(psutil.Error):
            found.update(Path(file.path) for file in process.open_files())
    return found

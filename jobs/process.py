"""The process of a command: signals heeded from its first line, and an end that keeps its code."""

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from .interruption import INTERRUPTION


def run_process(command: Callable[[], None]) -> NoReturn:
    """Run a command, and end this process with the exit code of its SystemExit, or 0.

    The process leaves without the interpreter's own end. Ray's client and gRPC keep threads after
    ``ray.shutdown()``, and ``exit()`` destroys the C++ objects that they use: once in a while one
    crashes, and SIGSEGV takes the place of the exit code. All that is ours is closed and flushed
    by then, and what Ray started has been ended.
    """
    INTERRUPTION.watch()
    code = 0
    try:
        command()
    except SystemExit as end:
        code = int(end.code or 0)
    INTERRUPTION.settle()
    _leave(code)


def _leave(code: int) -> NoReturn:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # the interpreter's own end tells of output that cannot be written
    os._exit(code)

"""Exit codes of every tokenmill command, and the one place where an exception becomes one.

====  ================  =============================================================
code  name              meaning
====  ================  =============================================================
0     DONE              done; the last line states the number of row errors
1     INTERNAL          a fault of tokenmill's own, or rows given up with their workers
2     USAGE             usage or configuration; nothing was started
3     ROW_ERRORS        rows failed and ``fail_on_errors`` or ``max_errors`` is set
4     UNREADABLE        an input file or the model cannot be used
75    STOPPED           stopped by a signal or by the machine; what is committed is kept
====  ================  =============================================================
"""

from enum import IntEnum
from errno import ENOSPC

from cluster.errors import (
    ClusterError,
    InputError,
    JobConfigError,
    JobStoppedError,
    RowErrorsError,
)
from kvpool.errors import KVPoolError, PoolSizeError
from worker.errors import EngineConfigError, ModelError, RowError, WorkerError


class ExitCode(IntEnum):
    """What the process answers to its caller; ``ray job submit`` shows it as driver_exit_code."""

    DONE = 0
    INTERNAL = 1
    USAGE = 2
    ROW_ERRORS = 3
    UNREADABLE = 4
    STOPPED = 75


_CODES: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (JobConfigError, ExitCode.USAGE),
    (EngineConfigError, ExitCode.USAGE),
    (PoolSizeError, ExitCode.USAGE),
    (RowErrorsError, ExitCode.ROW_ERRORS),
    (RowError, ExitCode.ROW_ERRORS),  # `generate` and `tokenize`: the one prompt is the row
    (InputError, ExitCode.UNREADABLE),
    (ModelError, ExitCode.UNREADABLE),
    (JobStoppedError, ExitCode.STOPPED),
    (KeyboardInterrupt, ExitCode.STOPPED),
)


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code that an exception stands for; INTERNAL when it is none of ours."""
    if _disk_full(error):
        return ExitCode.STOPPED
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.INTERNAL


def has_message(error: BaseException) -> bool:
    """Whether the error was raised for the user to read; if not, only its traceback helps."""
    ours = isinstance(error, ClusterError | WorkerError | KVPoolError | KeyboardInterrupt)
    return ours or _disk_full(error)


def _disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == ENOSPC

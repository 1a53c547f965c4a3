"""How a failed command ends: one line on standard error and the exit code that says which kind."""

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from .interruption import INTERRUPTION

TRACEBACK_VARIABLE = "TOKENMILL_TRACEBACK"
"""Set to 1, it shows the traceback of every error, also of those that have a clear message."""


@contextmanager
def one_line_failures() -> Iterator[None]:
    """Turn an exception of the block into its message and SystemExit with its code.

    An error that is none of ours is a fault of tokenmill: its traceback is shown in full, since
    nobody can mend it from one line.
    """
    try:
        yield
        sys.stdout.flush()  # here a full disk still has its message and exit code
    except BrokenPipeError:
        _close_broken_output()
        raise SystemExit(0) from None  # the reader has seen enough, as with `| head`
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _close_broken_output()
        raise SystemExit(_report(error)) from None


def _report(error: BaseException) -> int:
    """Print what the user needs of the error; its exit code."""
    INTERRUPTION.settle()
    from .exit_codes import exit_code_of, has_message  # imports all packages; help needs none

    stopped = isinstance(error, KeyboardInterrupt)
    text = f"stopped by {str(error) or 'Ctrl-C'}" if stopped else str(error)
    text = text.replace("\n", " ")
    if not has_message(error):
        text = f"internal error, please report the lines above: {type(error).__name__}: {text}"
    if not has_message(error) or os.environ.get(TRACEBACK_VARIABLE) == "1":
        traceback.print_exception(error)
    print(f"tokenmill: {text}", file=sys.stderr, flush=True)
    return exit_code_of(error)


def _close_broken_output() -> None:
    """Let the interpreter's last flush go nowhere, or it would complain about the output again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

"""How a failed command ends: one line on standard error and the exit code that says which kind."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from .exit_codes import ExitCode, exit_code_of

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
    except BrokenPipeError:
        _close_broken_output()
        raise SystemExit(ExitCode.DONE) from None  # the reader has seen enough, as with `| head`
    except (Exception, KeyboardInterrupt) as error:
        code = exit_code_of(error)
        if code is ExitCode.INTERNAL or os.environ.get(TRACEBACK_VARIABLE) == "1":
            traceback.print_exc()
        print(f"tokenmill: {message_of(error, code)}", file=sys.stderr, flush=True)
        raise SystemExit(code) from None


def message_of(error: BaseException, code: ExitCode) -> str:
    """The one line that the user reads."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped by Ctrl-C"
    text = str(error).replace("\n", " ")
    if code is ExitCode.INTERNAL:
        return (
            f"internal error, please report it with the lines above: {type(error).__name__}: {text}"
        )
    return text


def _close_broken_output() -> None:
    """Let the interpreter's last flush go nowhere, or it would complain about the pipe again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

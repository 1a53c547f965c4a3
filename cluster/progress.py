"""What a running job tells its caller, several times a second."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a job is doing."""

    CHECKING = "checking input and model"
    STARTING = "starting workers"
    RUNNING = "generating"
    FINISHING = "writing statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A job at one moment.

    Attributes:
        phase: what it is doing.
        num_rows: rows of the dataset.
        rows_done: rows that are committed.
        rows_before: those of them that earlier drivers of the run committed.
        num_errors: those of rows_done that failed.
        prompt_tokens: tokens prefilled so far by all workers.
        generated_tokens: tokens generated so far by all workers.
        elapsed_s: seconds since generation started.
        workers_ready: workers at work.
        num_workers: workers the job wants.
        note: something that happened and a user should know (a lost worker, say).
    """

    phase: Phase
    num_rows: int = 0
    rows_done: int = 0
    rows_before: int = 0
    num_errors: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    elapsed_s: float = 0.0
    workers_ready: int = 0
    num_workers: int = 0
    note: str | None = None


ProgressCallback = Callable[[Progress], None]
"""Called in the driver's thread; should return at once."""

"""Whether a process that loads a model gets on with it."""

import contextlib
from time import monotonic, process_time
from typing import Final

import psutil

from .file_lock import awaited_holders
from .unfinished_downloads import unfinished_bytes

_IDLE_SHARE: Final = 0.02  # of a core: what a process takes that only answers and waits


class StartUpLife:
    """Counts signs of life between one look and the next.

    A process gets on when it computes, when a model grows in the cache folder, or when it waits for
    a process of this machine that computes. Waiting for a network that sends nothing is no life.

    Attributes:
        signs: looks that found one.
        arrived: bytes of unfinished models in the cache folder, at the last look.
    """

    signs: int
    arrived: int

    def __init__(self) -> None:
        self.signs = 0
        self.arrived = unfinished_bytes()
        self._at = monotonic()
        self._seconds = _cpu_seconds()

    def look(self) -> int:
        """Look, and return the number of signs so far."""
        now, seconds, arrived = monotonic(), _cpu_seconds(), unfinished_bytes()
        busy = sum(after - self._seconds.get(process, 0.0) for process, after in seconds.items())
        if arrived != self.arrived or busy > _IDLE_SHARE * (now - self._at):
            self.signs += 1
        self._at, self._seconds, self.arrived = now, seconds, arrived
        return self.signs


def _cpu_seconds() -> dict[int | None, float]:
    """CPU seconds of this process, under None, and of those whose locks it waits for."""
    seconds: dict[int | None, float] = {None: process_time()}
    for process in awaited_holders():
        # It may have ended just now, or belong to another user.
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(process).cpu_times()
            seconds[process] = times.user + times.system
    return seconds

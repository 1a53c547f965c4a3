"""SIGINT and SIGTERM as a flag that the driver's loop looks at."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import JobStoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Which signal came, if any. A second one interrupts at once.

    Args:
        at_once: whether the first one does so too: while there is nothing yet to bring to an end.
    """

    def __init__(self, *, at_once: bool) -> None:
        self.name: str | None = None
        self._at_once = at_once

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal, or interrupt."""
        again = self.name is not None
        self.name = signal.Signals(number).name
        if self._at_once or again:
            raise JobStoppedError(f"stopped by {self.name}")


@contextmanager
def stop_signal(*, at_once: bool = False) -> Iterator[StopSignal]:
    """Watch for signals inside the block; outside the main thread none can be watched for."""
    stop = StopSignal(at_once=at_once)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

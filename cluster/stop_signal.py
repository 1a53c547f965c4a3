"""SIGINT and SIGTERM as a flag that the driver's loop looks at."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import JobStoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Which signal came, if any.

    The first one interrupts at once while there is nothing yet to bring to an end; after ``defer``
    it is noted only, and a second one interrupts.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._deferred = False

    def defer(self) -> None:
        """From now on, let the first signal wait until somebody looks."""
        self._deferred = True

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal, or interrupt."""
        again = self.name is not None
        self.name = signal.Signals(number).name
        if again or not self._deferred:
            raise JobStoppedError(f"stopped by {self.name}")


@contextmanager
def stop_signal() -> Iterator[StopSignal]:
    """Watch for signals inside the block; outside the main thread none can be watched for."""
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in _SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""SIGINT and SIGTERM as a flag that the driver's loop looks at."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from kvpool.errors import KVPoolError
from worker.errors import WorkerError

from .errors import ClusterError, JobStoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Which signal came, if any.

    The first one interrupts at once while there is nothing yet to bring to an end; after ``defer``
    it is noted only, and a second one interrupts. A third would hit the way out of the second, and
    is noted only.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._deferred = False
        self._signals = 0

    def defer(self) -> None:
        """From now on, let the first signal wait until somebody looks."""
        self._deferred = True

    def check(self) -> None:
        """Interrupt if a signal came."""
        if self.name is not None:
            raise KeyboardInterrupt(self.name)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal, or interrupt.

        Only KeyboardInterrupt passes through Ray: of any other exception of a signal handler its
        waiting loop makes a SystemError, and its start-up logs an Exception and goes on.
        """
        self._signals += 1
        self.name = signal.Signals(number).name
        if self._signals == 2 or (self._signals == 1 and not self._deferred):
            self.check()


@contextmanager
def stop_signal() -> Iterator[StopSignal]:
    """Watch for signals inside the block; outside the main thread none can be watched for.

    Raises:
        JobStoppedError: a signal interrupted the block. So it is, too, when anything unforeseen
            breaks after a signal: Ray's processes may have got the same one and be gone.
    """
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in _SIGNALS}
    try:
        yield stop
    except (ClusterError, WorkerError, KVPoolError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        if stop.name is None:
            raise
        raise JobStoppedError(_explain(stop.name, error)) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _explain(name: str, error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return f"stopped by {name}"
    return f"stopped by {name}, after which {type(error).__name__} was raised: {error}"

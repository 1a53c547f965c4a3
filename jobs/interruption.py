"""SIGINT and SIGTERM for the whole length of a command, from its first line to its exit code."""

import signal
from time import monotonic
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_TOGETHER_S: Final = 1.0


class Interruption:
    """Both signals as KeyboardInterrupt with the signal's name, until the outcome is settled.

    Signals that come together interrupt once: a second exception would hit the handling of the
    first and put another exit code in place of its own.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._last = -_TOGETHER_S
        self._watching = False

    def watch(self) -> None:
        """Take both signals from here on; in the main thread only."""
        self._watching = True
        for number in _SIGNALS:
            signal.signal(number, self.handle)

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal and interrupt."""
        now = monotonic()
        together = now - self._last < _TOGETHER_S
        self.name, self._last = signal.Signals(number).name, now
        if not together:
            raise KeyboardInterrupt(self.name)

    def check(self) -> None:
        """Interrupt if a signal came, also one whose exception was lost.

        Python drops what is raised in a callback of the garbage collector or of an import's lock.
        """
        if self.name is not None:
            raise KeyboardInterrupt(self.name)

    def settle(self) -> None:
        """Let no signal change the outcome any more; what is left to do takes a moment."""
        if self._watching:
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)


INTERRUPTION: Final = Interruption()
"""That of this process; without ``watch``, as in a program that calls a verb, it does nothing."""

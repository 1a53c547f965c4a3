"""Fewer rows at a time when memory runs short: Ray has no such guard on macOS."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from kvpool.available_memory import available_memory, memory_limit

_SHARE: Final = 0.05  # of the memory there is: what is left alone unless a setting says otherwise
_MOST_RESERVED: Final = 1 << 30
_ENOUGH: Final = 1.5  # times the reserve: rows are admitted again, and not stopped a moment later
_MOST_NOTES: Final = 100


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory at one moment, in bytes.

    Attributes:
        available: what this process could still take.
        rss: what it has in memory.
        mapped: those of them that are pages of files, weights above all, which the system drops
            when memory runs short; all of them where it does not tell, as on macOS.
        limit: what there is for it: the machine's, or its control groups' if less.
    """

    available: int
    rss: int
    mapped: int
    limit: int

    @property
    def room(self) -> int:
        """What it may still take by either figure."""
        return min(self.available, self.limit - (self.rss - self.mapped))


def memory_now() -> Memory:
    """Look at this process and its machine."""
    own = psutil.Process().memory_info()
    mapped = getattr(own, "shared", own.rss)
    return Memory(available_memory(), own.rss, mapped, memory_limit())


class MemoryGuard:
    """Says how many rows may run.

    With less room than the reserve no row comes in, with less than half of it the newest ones are
    preempted, half of them at a time. One always runs, so that the job gets on. With half as much
    room again as the reserve, all is as before.

    Attributes:
        max_running: most rows that may run now.
        available: bytes that were available at the last look.

    Args:
        max_num_seqs: most rows when there is room.
        reserve: bytes; None takes a twentieth of what there is, at most 1 GiB.
        look: gives the figures.
    """

    max_running: int
    available: int

    def __init__(
        self, max_num_seqs: int, reserve: int | None, look: Callable[[], Memory] = memory_now
    ) -> None:
        memory = look()
        self.max_running = max_num_seqs
        self.available = memory.available
        self._max_num_seqs = max_num_seqs
        share = min(_MOST_RESERVED, int(_SHARE * memory.limit))
        self._reserve = share if reserve is None else reserve
        self._look = look
        self._notes: deque[str] = deque(maxlen=_MOST_NOTES)

    def look(self, running: int) -> None:
        """Look, and set ``max_running``; ``running`` rows run now."""
        memory, before = self._look(), self.max_running
        self.available = memory.available
        if memory.room < self._reserve // 2:
            self.max_running = max(1, min(before, running) // 2)
        elif memory.room < self._reserve:
            self.max_running = max(1, min(before, running))
        elif memory.room >= _ENOUGH * self._reserve:
            self.max_running = self._max_num_seqs
        self._tell(before, memory)

    def take_notes(self) -> list[str]:
        """Return what is to be told since the last call; from any thread."""
        return [self._notes.popleft() for _ in range(len(self._notes))]

    def _tell(self, before: int, memory: Memory) -> None:
        """Note when the guard steps in and when it lets go, not each step between."""
        if before == self._max_num_seqs > self.max_running:
            self._notes.append(
                f"memory runs short: {memory.available:,} bytes are available, the worker has "
                f"{memory.rss:,}, and {self._reserve:,} are to be left alone "
                f"(cluster.memory_reserve_bytes); at most {self.max_running} rows at a time until "
                "there is room"
            )
        elif before < self._max_num_seqs == self.max_running:
            self._notes.append(
                f"there is room again, {memory.available:,} bytes: up to {self.max_running} rows "
                "at a time"
            )

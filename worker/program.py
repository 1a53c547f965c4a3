"""A model's step as a program: recorded once, replayed for every batch.

A program is a list of operations. Most are compiled tasks: runs of them are replayed by all threads
of the team without returning to Python (see `kernels.operations`). Some are Python calls,
such as a matrix product by BLAS; they stand between such runs. The memory an operation works on
stays where it is from step to step; what changes with the batch are the numbers in the header.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .kernels.native import Native, address_of
from .kernels.operations import OPERATION_WORDS
from .stages import Stages
from .thread_team import ThreadTeam


class Program:
    """Operations in the order in which a step runs them.

    Attributes:
        header: int64 words that operations read: numbers of tokens, items and the like.
    """

    header: NDArray[np.int64]

    def __init__(self, team: ThreadTeam, stages: Stages, header_words: int) -> None:
        self.header = np.zeros(header_words, np.int64)
        self._team = team
        self._stages = stages
        self._parts: list[_Tasks | _Call] = []

    def add_task(
        self,
        stage: str,
        task: Native,
        arguments: Sequence[int] | NDArray[np.int64],
        *,
        items: int = 1,
        items_word: int = -1,
    ) -> None:
        """Append a compiled task.

        Args:
            stage: that its time is counted under.
            task: takes (header, arguments, item, thread).
            arguments: the words it reads; addresses must stay valid.
            items: how many there are, or, with a header word, how many for each that it counts.
            items_word: index of the header word; -1 for none.
        """
        if not self._parts or not isinstance(self._parts[-1], _Tasks):
            self._parts.append(_Tasks([], [], []))
        part = self._parts[-1]
        assert isinstance(part, _Tasks)
        words = np.array(arguments, np.int64)
        part.arguments.append(words)
        part.operations.append((task.address, address_of(words), items, items_word))
        part.stages.append(stage)

    def add_call(self, stage: str, call: Callable[[], None]) -> None:
        """Append a Python call, which may use the team."""
        self._parts.append(_Call(stage, call))

    def finish(self) -> None:
        """Put the operations into the form that is replayed."""
        self._replays = [
            _Replay(part, self.header, self._team) if isinstance(part, _Tasks) else part
            for part in self._parts
        ]

    def run(self) -> None:
        """Run all operations with the header as it stands."""
        for part in self._replays:
            part.run(self._stages)


@dataclass(slots=True)
class _Tasks:
    """A run of compiled tasks while it is recorded."""

    operations: list[tuple[int, int, int, int]]
    arguments: list[NDArray[np.int64]]
    stages: list[str]


@dataclass(slots=True)
class _Call:
    """A Python call."""

    stage: str
    call: Callable[[], None]

    def run(self, stages: Stages) -> None:
        with stages.stage(self.stage):
            self.call()


class _Replay:
    """A run of compiled tasks, ready to be replayed."""

    def __init__(self, tasks: _Tasks, header: NDArray[np.int64], team: ThreadTeam) -> None:
        self._team = team
        self._stages = tasks.stages
        self._operations = np.array(tasks.operations, np.int64).reshape(-1, OPERATION_WORDS)
        self._nanoseconds = np.zeros(len(tasks.stages), np.int64)
        self._kept = (tasks.arguments, header)  # alive as long as their addresses are used
        self._program = (
            address_of(self._operations),
            len(self._operations),
            address_of(header),
            time.CLOCK_MONOTONIC,
            address_of(self._nanoseconds),
        )

    def run(self, stages: Stages) -> None:
        if stages.recording:
            self._nanoseconds[:] = 0
        self._team.replay(self._program)
        if stages.recording:
            for stage, nanoseconds in zip(self._stages, self._nanoseconds.tolist(), strict=True):
                stages.add(stage, 1e-9 * nanoseconds)

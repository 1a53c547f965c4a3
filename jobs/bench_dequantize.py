"""Dequantisation beside that of the gguf package, on the same rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType

from worker.gguf.dequantize import dequantize
from worker.thread_team import ThreadTeam

from .bench_timing import best_seconds
from .bench_weights import random_rows

ROWS, COLUMNS = 1024, 4096
_SLICES = 16  # of the rows, for the threads to share


@dataclass(frozen=True, slots=True)
class Dequantisation:
    """What was measured of a type.

    Attributes:
        qtype: the type.
        threads: that shared the rows; the gguf package uses one.
        rate: values a second.
        gguf_rate: values a second of ``gguf.quants.dequantize``, measured in turn.
    """

    qtype: GGMLQuantizationType
    threads: int
    rate: float
    gguf_rate: float

    @property
    def ratio(self) -> float:
        """Ours over the gguf package's."""
        return self.rate / self.gguf_rate


def measure_dequantisation(
    qtypes: Sequence[GGMLQuantizationType], threads: int
) -> Iterator[Dequantisation]:
    """Measure each type on 4 million values."""
    with ThreadTeam(threads) as team:
        for qtype in qtypes:
            yield _measure(qtype, team)


def _measure(qtype: GGMLQuantizationType, team: ThreadTeam) -> Dequantisation:
    raw = random_rows(qtype, ROWS, COLUMNS)
    out = np.empty((ROWS, COLUMNS), np.float32)
    step = ROWS // _SLICES

    def dequantize_slice(item: int) -> None:
        first, last = item * step, (item + 1) * step
        dequantize(raw[first:last], qtype, out[first:last])

    def ours(count: int) -> None:
        for _ in range(count):
            team.run(dequantize_slice, _SLICES)

    def theirs(count: int) -> None:
        for _ in range(count):
            quants.dequantize(raw, qtype)

    seconds, gguf_seconds = best_seconds(ours, theirs)
    return Dequantisation(qtype, team.threads, out.size / seconds, out.size / gguf_seconds)

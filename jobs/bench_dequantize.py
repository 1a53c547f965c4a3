"""Dequantisation beside that of the gguf package, on the same rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.gguf.dequantize import dequantize
from worker.thread_team import ThreadTeam

from .bench_timing import best_seconds
from .bench_weights import random_rows

_SLICES = 16  # of the rows, for the threads to share


@dataclass(frozen=True, slots=True)
class Dequantisation:
    """What was measured of a type.

    Attributes:
        qtype: the type.
        rows: of the weight.
        columns: of the weight.
        threads: that shared the rows; the gguf package uses one.
        rate: values a second.
        gguf_rate: values a second of ``gguf.quants.dequantize``, measured in turn; None when it
            cannot read the type.
    """

    qtype: GGMLQuantizationType
    rows: int
    columns: int
    threads: int
    rate: float
    gguf_rate: float | None

    @property
    def ratio(self) -> float | None:
        """Ours over the gguf package's."""
        return None if self.gguf_rate is None else self.rate / self.gguf_rate


def measure_dequantisation(
    qtype: GGMLQuantizationType, shapes: Sequence[tuple[int, int]], threads: int
) -> Iterator[Dequantisation]:
    """Measure a type on weights of these shapes."""
    with ThreadTeam(threads) as team:
        for rows, columns in shapes:
            yield _measure(qtype, rows, columns, team)


def _measure(
    qtype: GGMLQuantizationType, rows: int, columns: int, team: ThreadTeam
) -> Dequantisation:
    raw = random_rows(qtype, rows, columns)
    out = np.empty((rows, columns), np.float32)
    bounds = np.linspace(0, rows, _SLICES + 1, dtype=int).tolist()

    def dequantize_slice(item: int) -> None:
        first, last = bounds[item], bounds[item + 1]
        dequantize(raw[first:last], qtype, out[first:last])

    def ours(count: int) -> None:
        for _ in range(count):
            team.run(dequantize_slice, _SLICES)

    def theirs(count: int) -> None:
        for _ in range(count):
            quants.dequantize(raw, qtype)

    runs = (ours, theirs) if _gguf_reads(qtype, raw) else (ours,)
    rates = [out.size / seconds for seconds in best_seconds(*runs)]
    gguf_rate = rates[1] if len(rates) > 1 else None
    return Dequantisation(qtype, rows, columns, team.threads, rates[0], gguf_rate)


def _gguf_reads(qtype: GGMLQuantizationType, raw: NDArray[np.uint8]) -> bool:
    """Whether the gguf package can read the type, and not only knows its size."""
    try:
        quants.dequantize(raw[:1], qtype)
    except NotImplementedError:
        return False
    return True

"""Dequantisation beside that of the gguf package, on the same rows."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.gguf.dequantize import STREAMED_BYTES, dequantize
from worker.kernels.native import address_of
from worker.thread_team import ThreadTeam

from .bench_timing import best_seconds
from .bench_weights import random_rows

_SLICES = 16  # of the rows, for the threads to share
_ANY_BYTE = 0x3F  # but 0, which some CPUs write faster


@dataclass(frozen=True, slots=True)
class Dequantisation:
    """What was measured of a type, all in turn; rates are values a second.

    Attributes:
        qtype: the type.
        rows: of the weight.
        columns: of the weight.
        threads: that shared the rows; the gguf package uses one.
        rate: into an array that was there before, as the dequant cache has it.
        fresh_rate: into a new array each time.
        gguf_rate: of ``gguf.quants.dequantize``, which always makes a new array; None when it
            cannot read the type.
        fill_rate: of bytes set by C's memset, in the same array by the same threads.
    """

    qtype: GGMLQuantizationType
    rows: int
    columns: int
    threads: int
    rate: float
    fresh_rate: float
    gguf_rate: float | None
    fill_rate: float

    @property
    def ratio(self) -> float | None:
        """Ours over the gguf package's."""
        return None if self.gguf_rate is None else self.rate / self.gguf_rate

    @property
    def fresh_ratio(self) -> float | None:
        """The same where both make a new array."""
        return None if self.gguf_rate is None else self.fresh_rate / self.gguf_rate

    @property
    def of_fill(self) -> float:
        """Share of the speed at which memory is set."""
        return self.rate / self.fill_rate


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
    kept = np.empty((rows, columns), np.float32)
    bounds = np.linspace(0, rows, _SLICES + 1, dtype=int).tolist()
    slices = [slice(first, last) for first, last in pairwise(bounds)]
    stream = kept.nbytes >= STREAMED_BYTES

    def into(out: NDArray[np.float32]) -> None:
        def dequantize_slice(item: int) -> None:
            part = slices[item]
            dequantize(raw[part], qtype, out[part], stream=stream)

        team.run(dequantize_slice, _SLICES)

    def fill_slice(item: int) -> None:
        part = kept[slices[item]]
        ctypes.memset(address_of(part), _ANY_BYTE, part.nbytes)

    runs: list[Callable[[], object]] = [
        lambda: into(kept),
        lambda: into(np.empty((rows, columns), np.float32)),
        lambda: team.run(fill_slice, _SLICES),
    ]
    if _gguf_reads(qtype, raw):
        runs.append(lambda: quants.dequantize(raw, qtype))
    seconds = best_seconds(*map(_repeated, runs))
    rate, fresh, fill, *by_gguf = (kept.size / taken for taken in seconds)
    gguf_rate = by_gguf[0] if by_gguf else None
    return Dequantisation(qtype, rows, columns, team.threads, rate, fresh, gguf_rate, fill)


def _gguf_reads(qtype: GGMLQuantizationType, raw: NDArray[np.uint8]) -> bool:
    """Whether the gguf package can read the type, and not only knows its size."""
    try:
        quants.dequantize(raw[:1], qtype)
    except NotImplementedError:
        return False
    return True


def _repeated(run: Callable[[], object]) -> Callable[[int], None]:
    def repeat(count: int) -> None:
        for _ in range(count):
            run()

    return repeat

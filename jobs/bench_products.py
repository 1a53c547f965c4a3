"""Products of packed weights with tokens as a step computes them, beside the peak of the CPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.kernels.layouts import ALIGNMENT, layout_of, row_blocks
from worker.kernels.native import address_of
from worker.kernels.pack import pack_rows
from worker.kernels.peak import CHAINS, PEAKS, peak_task
from worker.kernels.projection_task import SCRATCH_BYTES, projection_task, tile_table
from worker.kernels.quantize import quantized
from worker.kernels.tile import tiles
from worker.models.linear import PackedPart, flat_items
from worker.packed_file import PackedTensor
from worker.program import Program
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .bench_timing import best_seconds
from .bench_weights import random_rows

_PEAK_TURNS = 50_000
_LONG_ENOUGH = 100_000_000  # operations of a run, beside which a call from Python is nothing
_STAGE = "attn_qkv"  # a program counts its time under a stage; nothing records it here
_TOKENS = 0  # header word


@dataclass(frozen=True, slots=True)
class Product:
    """What was measured of a product.

    Attributes:
        qtype: of the weight.
        rows: of the weight.
        columns: of the weight.
        tokens: it is multiplied with.
        threads: that shared the work.
        gops: multiplications and additions a nanosecond.
        peaks: the same of the CPU's instructions, measured in turn with it, by instruction set.
    """

    qtype: GGMLQuantizationType
    rows: int
    columns: int
    tokens: int
    threads: int
    gops: float
    peaks: dict[str, float]


class _Work(Protocol):
    """Something that a team of threads does as a program.

    Attributes:
        operations: multiplications and additions of a run.
    """

    operations: int

    def run(self, count: int) -> None:
        """Do it so many times."""


def measure_products(
    qtype: GGMLQuantizationType,
    shapes: Sequence[tuple[int, int]],
    tokens: Sequence[int],
    threads: int,
    peaks: Sequence[str],
) -> Iterator[Product]:
    """Measure weights of a type on a team of threads, each product in turn with the peaks."""
    with ThreadTeam(threads) as team:
        peak_works = [PeakWork(isa, team) for isa in peaks]
        for rows, columns in shapes:
            weight = packed_weight(qtype, rows, columns)
            for count in tokens:
                work = ProductWork(weight, count, team)
                gops, *of_peaks = _gops(work, *peak_works)
                found = dict(zip(peaks, of_peaks, strict=True))
                yield Product(qtype, rows, columns, count, threads, gops, found)


def packed_weight(qtype: GGMLQuantizationType, rows: int, columns: int) -> PackedPart:
    """A random weight as a model has it: packed, with its tiles."""
    layout = layout_of(qtype)
    assert layout is not None, f"{qtype.name} has no packed layout"
    n_bytes = layout.packed_bytes(rows, columns)
    room = np.empty(n_bytes + ALIGNMENT, np.uint8)
    skew = -address_of(room) % ALIGNMENT
    packed = room[skew : skew + n_bytes]
    pack_rows(random_rows(qtype, rows, columns), layout, columns, packed)
    tensor = PackedTensor(qtype, rows, columns, packed.reshape(row_blocks(rows), -1))
    return PackedPart(tensor, layout, tile_table(tiles(qtype)), column=0)


class ProductWork:
    """A weight times some tokens, again and again, by the task that a model's step runs.

    Attributes:
        operations: multiplications and additions of a run, all repetitions together.
        out: [tokens, rows] float32.
    """

    operations: int
    out: NDArray[np.float32]

    def __init__(self, weight: PackedPart, tokens: int, team: ThreadTeam) -> None:
        rows, columns = weight.tensor.rows, weight.tensor.columns
        values = np.random.default_rng(tokens).standard_normal((tokens, columns), np.float32)
        x: NDArray[np.generic] = quantized(values) if weight.takes_records else values
        once = 2 * rows * columns * tokens
        repetitions = -(-_LONG_ENOUGH // once)
        self.operations = once * repetitions
        self.out = np.empty((tokens, rows), np.float32)
        scratch = np.empty(SCRATCH_BYTES * team.threads, np.uint8)
        self._kept = (weight, x, scratch)  # alive as long as their addresses are used
        items = weight.items(weight.row_blocks, team.threads)
        arguments = [
            *(address_of(x), x.strides[0], address_of(self.out), self.out.strides[0]),
            *(_TOKENS, 0, 0, address_of(scratch), *flat_items(items)),
        ]
        self._program = Program(team, Stages(), 1)
        self._program.header[_TOKENS] = tokens
        for _ in range(repetitions):
            self._program.add_task(_STAGE, projection_task, arguments, items=len(items))
        self._program.finish()

    def run(self, count: int) -> None:
        """Multiply so many times."""
        for _ in range(count):
            self._program.run()


class PeakWork:
    """An instruction of `peak`, on every thread.

    Attributes:
        operations: multiplications and additions of a run.
    """

    operations: int

    def __init__(self, isa: str, team: ThreadTeam) -> None:
        peak = PEAKS[isa]
        self.operations = _PEAK_TURNS * team.threads * peak.operations
        self._factors = np.ones(peak.n_bytes, np.int8)
        self._sums = np.ones((team.threads, CHAINS, peak.n_bytes), np.uint8)
        arguments = [_PEAK_TURNS, address_of(self._factors), address_of(self._sums)]
        self._program = Program(team, Stages(), 1)
        self._program.add_task(_STAGE, peak_task(isa), arguments, items=team.threads)
        self._program.finish()

    def run(self, count: int) -> None:
        """Run all chains so many times."""
        for _ in range(count):
            self._program.run()


def _gops(*works: _Work) -> list[float]:
    seconds = best_seconds(*(work.run for work in works))
    return [work.operations / taken / 1e9 for work, taken in zip(works, seconds, strict=True)]

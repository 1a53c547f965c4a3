"""The sliding cache of dequantised weights (design 5).

A step visits the weights in a cycle: layer after layer, then the output head. In a cycle the least
recently used entry is always the one needed next, so plain LRU would never hit. The memory allowed
is therefore split: the first units of the cycle are pinned and stay across steps; the others
slide through a ring of two buffers. With room for n of the u units of a cycle, n - 2 are pinned,
and n - 2 of u visits hit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from .errors import EngineConfigError
from .gguf import STREAMED_BYTES, ModelFile, dequantize
from .stages import Stages
from .thread_team import ThreadTeam

_ITEM_VALUES = 1 << 16  # values one thread dequantises at a time
_ALIGNMENT = 16  # values: matrices start on cache lines
RING = 2
"""Buffers that units slide through."""


@dataclass(frozen=True, slots=True)
class TensorRows:
    """Rows first to last of a tensor of the file."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WeightMatrix:
    """Tensors stacked into one matrix, for example query, key and value projections.

    Attributes:
        sources: the tensors' rows, from top to bottom; where there are experts, the first one's.
        columns: of all of them.
        experts: matrices of this kind that follow each other in the tensors, one an expert; None
            for a matrix that stands alone.
    """

    sources: tuple[TensorRows, ...]
    columns: int
    experts: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), of an expert where there are some."""
        return sum(source.last - source.first for source in self.sources), self.columns

    def of_expert(self, expert: int) -> "WeightMatrix":
        """The matrix of one expert."""
        assert self.experts is not None, f"{self.sources} has no experts"
        assert 0 <= expert < self.experts, (expert, self.experts)
        shifts = [expert * (source.last - source.first) for source in self.sources]
        sources = [
            TensorRows(source.name, source.first + shift, source.last + shift)
            for source, shift in zip(self.sources, shifts, strict=True)
        ]
        return WeightMatrix(tuple(sources), self.columns)


@dataclass(frozen=True, slots=True)
class WeightUnit:
    """What is dequantised and dropped together: of a layer, of an expert, or a slice of the head.

    Attributes:
        name: for messages.
        matrices: in the order in which a step needs them.
    """

    name: str
    matrices: tuple[WeightMatrix, ...]

    @property
    def size(self) -> int:
        """Float32 values of its buffer."""
        return sum(_aligned(prod(matrix.shape)) for matrix in self.matrices)

    @property
    def n_bytes(self) -> int:
        """Bytes of its buffer."""
        return 4 * self.size


@dataclass(frozen=True, slots=True)
class DequantCacheStats:
    """Counters since the cache was made.

    Attributes:
        units: units of a cycle (layers, experts and slices of the output head).
        pinned: units that stay.
        hits: visits that found their unit.
        misses: visits that had to dequantise it.
        evictions: units overwritten by another.
        n_bytes: dequantised bytes held now.
        peak_bytes: most bytes ever held.
        reserved_bytes: bytes of all buffers, at most the bound.
        dequantised_bytes: bytes written by all misses.
    """

    units: int
    pinned: int
    hits: int
    misses: int
    evictions: int
    n_bytes: int
    peak_bytes: int
    reserved_bytes: int
    dequantised_bytes: int


class DequantCache:
    """Float32 copies of the weights in use, in a bounded amount of memory.

    Attributes:
        units: in the order in which a step visits them.
        max_bytes: bound on the buffers' bytes; None: no bound.
        max_units: bound on the number of units held; None: no bound.
    """

    units: tuple[WeightUnit, ...]
    max_bytes: int | None
    max_units: int | None

    def __init__(
        self,
        gguf: ModelFile,
        units: Sequence[WeightUnit],
        team: ThreadTeam,
        stages: Stages,
        *,
        max_bytes: int | None = None,
        max_units: int | None = None,
    ) -> None:
        """Reserve the buffers; nothing is dequantised yet.

        Raises:
            EngineConfigError: a bound leaves no room for the ring; names the least it must be.
        """
        self.units = tuple(units)
        self.max_bytes, self.max_units = max_bytes, max_units
        self._gguf, self._team, self._stages = gguf, team, stages
        self._num_pinned = _num_pinned(self.units, max_bytes, max_units)
        self._pinned = [np.empty(unit.size, np.float32) for unit in self.units[: self._num_pinned]]
        sliding = self.units[self._num_pinned :]
        ring_size = max((unit.size for unit in sliding), default=0)
        self._ring = [np.empty(ring_size, np.float32) for _ in range(RING if sliding else 0)]
        self._ring_units: list[int | None] = [None] * len(self._ring)
        self._next = 0
        self._filled = [False] * self._num_pinned
        self._current: tuple[NDArray[np.float32], ...] = ()
        self._current_unit: int | None = None
        self._hits = self._misses = self._evictions = 0
        self._bytes = self._peak_bytes = self._dequantised_bytes = 0

    def matrix(self, unit: int, index: int) -> NDArray[np.float32]:
        """A dequantised matrix: float32 [rows, columns].

        A unit's matrices asked for one after the other count as one visit. The array is valid
        until two other units have been visited.

        Args:
            unit: position in `units`.
            index: position among the unit's matrices.
        """
        if unit != self._current_unit:
            self._current = self._visit(unit)
            self._current_unit = unit
        return self._current[index]

    def begin_step(self) -> None:
        """Start a new cycle: the next matrix counts as a new visit."""
        self._current_unit = None

    def stats(self) -> DequantCacheStats:
        """The counters now."""
        buffers = [*self._pinned, *self._ring]
        return DequantCacheStats(
            units=len(self.units),
            pinned=self._num_pinned,
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            n_bytes=self._bytes,
            peak_bytes=self._peak_bytes,
            reserved_bytes=sum(buffer.nbytes for buffer in buffers),
            dequantised_bytes=self._dequantised_bytes,
        )

    def check_invariants(self) -> None:
        """Assert that what is held, counted and bounded agrees."""
        held = [u for u in self._ring_units if u is not None]
        assert len(set(held)) == len(held), f"a unit is in the ring twice: {held}"
        assert all(u >= self._num_pinned for u in held), f"a pinned unit is in the ring: {held}"
        held += [u for u in range(self._num_pinned) if self._filled[u]]
        expected = sum(self.units[u].n_bytes for u in held)
        assert expected == self._bytes, (expected, self._bytes)
        assert self._bytes <= self._peak_bytes <= self.stats().reserved_bytes
        assert self.max_bytes is None or self.stats().reserved_bytes <= self.max_bytes
        assert self.max_units is None or len(held) <= self.max_units, (held, self.max_units)
        assert self._misses - self._evictions == len(held), (self._misses, self._evictions, held)

    def _visit(self, unit: int) -> tuple[NDArray[np.float32], ...]:
        if unit < self._num_pinned:
            buffer = self._pinned[unit]
            if self._filled[unit]:
                self._hits += 1
            else:
                self._fill(unit, buffer)
                self._filled[unit] = True
                self._release_pages(unit)
        elif unit in self._ring_units:
            self._hits += 1
            buffer = self._ring[self._ring_units.index(unit)]
        else:
            buffer = self._slide(unit)
        return _matrices(self.units[unit], buffer)

    def _slide(self, unit: int) -> NDArray[np.float32]:
        """Overwrite the older buffer of the ring."""
        place, self._next = self._next, (self._next + 1) % RING
        old = self._ring_units[place]
        if old is not None:
            self._evictions += 1
            self._bytes -= self.units[old].n_bytes
        self._ring_units[place] = None
        self._fill(unit, self._ring[place])
        self._ring_units[place] = unit
        return self._ring[place]

    def _fill(self, unit: int, buffer: NDArray[np.float32]) -> None:
        """Dequantise a unit, its rows shared by the team."""
        pieces = _pieces(self.units[unit], buffer)
        stream = self.units[unit].n_bytes >= STREAMED_BYTES

        def dequantise_piece(item: int) -> None:
            rows, out = pieces[item]
            raw = self._gguf.rows(rows.name, rows.first, rows.last)
            dequantize(raw, self._gguf.tensors[rows.name].qtype, out, stream=stream)

        with self._stages.stage("dequantise") as stage:
            self._team.run(dequantise_piece, len(pieces))
            stage.output(buffer)
        self._misses += 1
        self._bytes += self.units[unit].n_bytes
        self._peak_bytes = max(self._peak_bytes, self._bytes)
        self._dequantised_bytes += self.units[unit].n_bytes

    def _release_pages(self, unit: int) -> None:
        """Give back the file's pages of a pinned unit: they are not read again."""
        for matrix in self.units[unit].matrices:
            for source in matrix.sources:
                self._gguf.release(source.name)


def _aligned(values: int) -> int:
    return -(-values // _ALIGNMENT) * _ALIGNMENT


def _matrices(unit: WeightUnit, buffer: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """A unit's matrices as views of its buffer."""
    views, start = [], 0
    for matrix in unit.matrices:
        size = prod(matrix.shape)
        views.append(buffer[start : start + size].reshape(matrix.shape))
        start += _aligned(size)
    return tuple(views)


def _pieces(
    unit: WeightUnit, buffer: NDArray[np.float32]
) -> list[tuple[TensorRows, NDArray[np.float32]]]:
    """A unit cut into ranges of rows, each with the place in the buffer that it fills."""
    pieces = []
    for matrix, view in zip(unit.matrices, _matrices(unit, buffer), strict=True):
        rows = max(1, _ITEM_VALUES // matrix.columns)
        top = 0
        for source in matrix.sources:
            for first in range(source.first, source.last, rows):
                last = min(first + rows, source.last)
                out = view[top : top + last - first]
                pieces.append((TensorRows(source.name, first, last), out))
                top += last - first
    return pieces


def _num_pinned(units: Sequence[WeightUnit], max_bytes: int | None, max_units: int | None) -> int:
    """Most leading units that can stay while the others still slide through the ring."""
    sizes = [unit.n_bytes for unit in units]
    before = list(accumulate(sizes, initial=0))
    largest_from = list(accumulate(reversed(sizes), max, initial=0))[::-1]
    for pinned in range(len(units), -1, -1):
        needed = before[pinned] + RING * largest_from[pinned]
        held = pinned + (RING if pinned < len(units) else 0)
        if (max_bytes is None or needed <= max_bytes) and (max_units is None or held <= max_units):
            return pinned
    if max_units is not None and max_units < RING:
        raise EngineConfigError(
            f"dequant_cache_layers is {max_units}, but weights slide through {RING} buffers: "
            f"set it to at least {RING}"
        )
    largest = largest_from[0]
    raise EngineConfigError(
        f"dequant_cache_bytes is {max_bytes}, too few for two buffers of the largest layer "
        f"({largest} bytes dequantised): set it to at least {RING * largest}"
    )

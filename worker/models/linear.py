"""Linear projections: the seam between models and the arithmetic of their weights.

A model asks for y = x @ W.T + b and does not know how W is kept: packed, for kernels that work on
the weights as they are quantised, or as a float32 matrix of the dequant cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.dequant_cache import DequantCache
from worker.kernels.gated_activation import Activation, factors
from worker.kernels.layouts import ROWS as ROW_BLOCK
from worker.kernels.layouts import Layout, row_blocks
from worker.kernels.native import address_of, real_word
from worker.kernels.projection_task import SCRATCH_BYTES, gated_task, projection_task
from worker.kernels.quantize import QUANT_BLOCK
from worker.matmul import Matmul
from worker.packed_file import PackedTensor

from .rows import Rows
from .workspace import Memory

if TYPE_CHECKING:
    from .step import Step

_ITEMS_A_THREAD = 8  # even out the load without much counting
_ITEM_BYTES = 1 << 18  # of weights: what stays in a second-level cache beside the tokens


class Linear(Protocol):
    """A projection.

    Attributes:
        outputs: values of a result row.
        can_gate: whether `record_gated` can be used: the projection is gate and up, packed alike.
    """

    outputs: int

    @property
    def can_gate(self) -> bool:
        """See above."""

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record x @ W.T + b.

        Args:
            step: what is recorded.
            stage: that its time is counted under.
            x: the inputs.
            out: float32 rows of `outputs` values.
            adds: add to what is in `out` instead of overwriting it.
        """

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Record activation(gate) * up, quantised: `out` holds records."""


class PlannedLinear:
    """A projection that was asked for while others still were to come. Implements `Linear`.

    The weights of all projections are packed, or given room, together; before that, one can say
    how wide it is, not more.
    """

    outputs: int

    def __init__(self, outputs: int, make: Callable[[], Linear]) -> None:
        """Say what is known: the width, and who makes the projection once all are known."""
        self.outputs = outputs
        self._make = make

    @cached_property
    def _made(self) -> Linear:
        return self._make()

    @property
    def can_gate(self) -> bool:
        """See `Linear`."""
        return self._made.can_gate

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record x @ W.T + b, see `Linear`."""
        self._made.record(step, stage, x, out, adds=adds)

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Record activation(gate) * up, see `Linear`."""
        self._made.record_gated(step, stage, x, out, activation)


class F32Linear:
    """A projection whose weight is a float32 matrix of the dequant cache. Implements `Linear`."""

    outputs: int
    can_gate = False

    def __init__(
        self,
        cache: DequantCache,
        unit: int,
        index: int,
        matmul: Matmul,
        bias: NDArray[np.float32] | None = None,
        first_column: int = 0,
    ) -> None:
        """Name the matrix.

        Args:
            cache: the dequant cache.
            unit: the cache's unit that holds the matrix.
            index: of the matrix in the unit.
            matmul: the matrix product.
            bias: [outputs] float32, or None.
            first_column: column of the result that the matrix's row 0 stands for.
        """
        self.outputs = cache.units[unit].matrices[index].shape[0]
        self._cache, self._unit, self._index = cache, unit, index
        self._matmul, self._bias, self._first = matmul, bias, first_column

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record the product as a call, see `Linear`."""
        source, row_set = x.floats.array, x.row_set
        target = step.floats(f"{stage} sum", out.width, row_set).array if adds else out.array

        def multiply() -> None:
            rows = step.count(row_set)
            if rows == 0:
                return
            self._multiply(source[:rows], target[:rows])
            if adds:
                columns = slice(self._first, self._first + self.outputs)
                out.array[:rows, columns] += target[:rows, columns]

        step.program.add_call(stage, multiply)

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Not for float32 matrices, see `can_gate`."""
        raise AssertionError("a float32 projection cannot be fused with its activation")

    def _multiply(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        weight = self._cache.matrix(self._unit, self._index)
        self._matmul.multiply(weight, x, out, self._first)
        if self._bias is not None:
            out[:, self._first : self._first + self.outputs] += self._bias


@dataclass(frozen=True, slots=True)
class PackedPart:
    """One packed tensor of a projection.

    Attributes:
        tensor: the weights.
        layout: how they lie in memory.
        tiles: addresses of the tiles that multiply them, see `tile_table`.
        column: first column of the result.
        experts: that the tensor holds, one after the other; a row block has rows of one only.
    """

    tensor: PackedTensor
    layout: Layout
    tiles: NDArray[np.int64]
    column: int
    experts: int = 1

    @property
    def takes_records(self) -> bool:
        """Whether the tiles take quantised records; else float32 rows."""
        return bool(self.layout.planes)

    @property
    def inner_blocks(self) -> int:
        """What a tile counts along a row: 32 columns, or one of a float type."""
        return self.tensor.columns // (QUANT_BLOCK if self.takes_records else 1)

    @property
    def rows(self) -> int:
        """Rows of an expert."""
        return self.tensor.rows // self.experts

    @property
    def row_blocks(self) -> int:
        """Row blocks of an expert."""
        return row_blocks(self.rows)

    @property
    def expert_bytes(self) -> int:
        """Bytes from an expert to the next one."""
        return self.row_blocks * self.tensor.row_block_bytes

    def items(self, total: int, threads: int) -> list[tuple[int, ...]]:
        """Cut the first expert into items of `projection_task`.

        Args:
            total: row blocks of all parts that the task multiplies.
            threads: of the team.
        """
        tensor = self.tensor
        rows = _share(total, tensor.row_block_bytes, threads) * ROW_BLOCK
        return [
            (
                tensor.address + first // ROW_BLOCK * tensor.row_block_bytes,
                tensor.row_block_bytes,
                self.inner_blocks,
                address_of(self.tiles),
                self.column + first,
                min(rows, self.rows - first),
            )
            for first in range(0, self.rows, rows)
        ]


class PackedLinear:
    """A projection by tiles over packed weights, and float32 matrices where a type has no tiles.

    Implements `Linear`.
    """

    outputs: int
    can_gate: bool

    def __init__(
        self,
        parts: Sequence[PackedPart],
        others: Sequence[Linear],
        outputs: int,
        bias: NDArray[np.float32] | None = None,
    ) -> None:
        """Put a projection together.

        Args:
            parts: packed tensors.
            others: the tensors that are not packed, with their own place in the result and their
                own bias.
            outputs: columns of the result.
            bias: [outputs] float32, or None; taken for the packed tensors' columns.
        """
        self.outputs = outputs
        self.can_gate = _can_gate(parts, others, outputs, bias)
        self._parts, self._others, self._bias = parts, others, bias

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record one task for all tensors that take the same input, see `Linear`."""
        for takes_records in (True, False):
            parts = [part for part in self._parts if part.takes_records == takes_records]
            if parts:
                self._record_parts(step, stage, x, out, parts, adds)
        for other in self._others:
            other.record(step, stage, x, out, adds=adds)

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Record gate, up, activation and quantisation as one task, see `Linear`."""
        gate, up = self._parts
        groups = self.outputs // 2 // QUANT_BLOCK
        share = _share(groups, 4 * gate.tensor.row_block_bytes, step.threads)
        items = [
            (
                *_weights(gate, 2 * first),
                *_weights(up, 2 * first),
                gate.inner_blocks,
                first,
                min(share, groups - first),
            )
            for first in range(0, groups, share)
        ]
        linear, cubic = map(real_word, factors(activation))
        words = [
            *(x.records.address, x.records.stride, out.address, out.stride),
            *(x.row_set.count_word, linear, cubic, scratch(step)),
        ]
        step.program.add_task(stage, gated_task, [*words, *flat_items(items)], items=len(items))

    def _record_parts(
        self, step: "Step", stage: str, x: Rows, out: Memory, parts: list[PackedPart], adds: bool
    ) -> None:
        source = x.records if parts[0].takes_records else x.floats
        total = sum(part.row_blocks for part in parts)
        items = [item for part in parts for item in part.items(total, step.threads)]
        bias = 0 if self._bias is None else address_of(self._bias)
        words = [
            *(source.address, source.stride, out.address, out.stride),
            *(x.row_set.count_word, int(adds), bias, scratch(step)),
        ]
        step.program.add_task(
            stage, projection_task, [*words, *flat_items(items)], items=len(items)
        )


def _can_gate(
    parts: Sequence[PackedPart],
    others: Sequence[Linear],
    outputs: int,
    bias: NDArray[np.float32] | None,
) -> bool:
    return (
        len(parts) == 2
        and not others
        and bias is None
        and all(part.takes_records for part in parts)
        and parts[0].tensor.rows == parts[1].tensor.rows == outputs // 2
        and outputs % (2 * QUANT_BLOCK) == 0
    )


def _share(blocks: int, block_bytes: int, threads: int) -> int:
    """Row blocks (or groups of them) of an item."""
    even = -(-blocks // (_ITEMS_A_THREAD * threads))
    return max(1, min(even, _ITEM_BYTES // block_bytes))


def _weights(part: PackedPart, first_block: int) -> tuple[int, int, int]:
    """A part from a row block on, as `gated_task` takes it."""
    tensor = part.tensor
    start = tensor.address + first_block * tensor.row_block_bytes
    return start, tensor.row_block_bytes, address_of(part.tiles)


def scratch(step: "Step") -> int:
    """Address of the threads' scratch for tiles."""
    return step.floats("tile scratch", step.threads * SCRATCH_BYTES // 4).address


def flat_items(items: Sequence[tuple[int, ...]]) -> list[int]:
    """The words of all items, one after the other."""
    return [word for item in items for word in item]

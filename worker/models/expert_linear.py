"""Projections of experts: each has a weight of its own, and meets the tokens that chose it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from worker.dequant_cache import DequantCache
from worker.kernels.gated_activation import Activation
from worker.kernels.native import address_of
from worker.kernels.projection_task import expert_task
from worker.matmul import Matmul

from .batch_memory import ACTIVE_EXPERTS
from .linear import Linear, PackedPart, flat_items, scratch
from .rows import Rows
from .workspace import Memory

if TYPE_CHECKING:
    from .step import Step


class F32ExpertLinear:
    """Experts whose weights are float32 matrices of the dequant cache. Implements `Linear`."""

    outputs: int
    can_gate = False

    def __init__(
        self,
        cache: DequantCache,
        first_unit: int,
        matmul: Matmul,
        bias: NDArray[np.float32] | None = None,
        first_column: int = 0,
    ) -> None:
        """Name the matrices.

        Args:
            cache: the dequant cache.
            first_unit: the cache's unit with the first expert's matrix; the others follow.
            matmul: the matrix product.
            bias: [experts, outputs] float32, or None.
            first_column: column of the result that row 0 of a matrix stands for.
        """
        self.outputs = cache.units[first_unit].matrices[0].shape[0]
        self._cache, self._unit = cache, first_unit
        self._matmul, self._bias, self._first = matmul, bias, first_column

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record the products of all experts as a call, see `Linear`; x and out are by place."""
        assert not adds, "experts' results are added by their weights"
        source, target = x.floats.array, out.array
        step.program.add_call(stage, lambda: self._multiply(step, source, target))

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Not for experts, see `can_gate`."""
        raise AssertionError("an expert's projection cannot be fused with its activation")

    def _multiply(self, step: "Step", x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        columns = slice(self._first, self._first + self.outputs)
        for expert, rows in _active_rows(step):
            weight = self._cache.matrix(self._unit + expert, 0)
            self._matmul.multiply(weight, x[rows], out[rows], self._first)
            if self._bias is not None:
                out[rows, columns] += self._bias[expert]


class PackedExpertLinear:
    """Experts by tiles over packed weights, or float32 matrices where a type has no tiles.

    Implements `Linear`.
    """

    outputs: int
    can_gate = False

    def __init__(
        self,
        parts: Sequence[PackedPart],
        others: Sequence[Linear],
        outputs: int,
        bias: NDArray[np.float32] | None = None,
    ) -> None:
        """Put a projection together.

        Args:
            parts: packed tensors, each of all experts.
            others: the tensors that are not packed, with their own place in the result and their
                own bias.
            outputs: columns of the result.
            bias: [experts, outputs] float32, or None; taken for the packed tensors' columns.
        """
        self.outputs = outputs
        self._parts, self._others, self._bias = parts, others, bias

    def record(self, step: "Step", stage: str, x: Rows, out: Memory, *, adds: bool) -> None:
        """Record one task for all tensors that take the same input, see `Linear`."""
        assert not adds, "experts' results are added by their weights"
        for takes_records in (True, False):
            parts = [part for part in self._parts if part.takes_records == takes_records]
            if parts:
                self._record_parts(step, stage, x, out, parts)
        for other in self._others:
            other.record(step, stage, x, out, adds=False)

    def record_gated(
        self, step: "Step", stage: str, x: Rows, out: Memory, activation: Activation
    ) -> None:
        """Not for experts, see `can_gate`."""
        raise AssertionError("an expert's projection cannot be fused with its activation")

    def _record_parts(
        self, step: "Step", stage: str, x: Rows, out: Memory, parts: list[PackedPart]
    ) -> None:
        routing = step.routing
        source = x.records if parts[0].takes_records else x.floats
        total = routing.config.used * sum(part.row_blocks for part in parts)
        items = [
            (*item, part.expert_bytes) for part in parts for item in part.items(total, step.threads)
        ]
        bias = 0 if self._bias is None else address_of(self._bias)
        words = [
            *(source.address, source.stride, out.address, out.stride),
            *(x.row_set.count_word, 0, bias, scratch(step)),
            *(address_of(routing.starts), address_of(routing.active)),
            *(4 * self.outputs, len(items)),
        ]
        step.program.add_task(
            stage,
            expert_task,
            [*words, *flat_items(items)],
            items=len(items),
            items_word=ACTIVE_EXPERTS,
        )


def _active_rows(step: "Step") -> Iterator[tuple[int, slice]]:
    """The experts that were chosen in the step that is running, and the places of their tokens."""
    routing, count = step.routing, int(step.program.header[ACTIVE_EXPERTS])
    for expert in routing.active[:count].tolist():
        yield expert, slice(int(routing.starts[expert]), int(routing.starts[expert + 1]))

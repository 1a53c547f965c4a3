"""The projections of a model, in the compute mode asked for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.compute_config import ComputeConfig
from worker.dequant_cache import DequantCache, TensorRows, WeightMatrix
from worker.gguf import ModelFile
from worker.kernels.layouts import ROWS as ROW_BLOCK
from worker.kernels.layouts import layout_of
from worker.kernels.projection_task import tile_table
from worker.kernels.tile import tiles
from worker.matmul import CompiledMatmul, Matmul, choose_matmul
from worker.packed_file import PackedTensor, open_packed
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .expert_linear import F32ExpertLinear, PackedExpertLinear
from .linear import F32Linear, Linear, PackedLinear, PackedPart
from .packed_head import PackedHead
from .weight_units import UnitPlan

Bias = NDArray[np.float32] | None
"""[outputs], or [experts, outputs] where the matrix is of experts; None for none."""


@dataclass(frozen=True, slots=True)
class ProjectionWeights:
    """What projections are made of.

    Attributes:
        gguf: the model's file.
        layers: matrices of each layer.
        head: matrices of the output head, cut by rows.
        compute: how to compute.
        team: threads to compute with.
        stages: stage records.
    """

    gguf: ModelFile
    layers: Sequence[Sequence[WeightMatrix]]
    head: Sequence[WeightMatrix]
    compute: ComputeConfig
    team: ThreadTeam
    stages: Stages

    def plan(self, chosen: Callable[[WeightMatrix], Iterable[WeightMatrix]]) -> UnitPlan:
        """Units of the dequant cache for what was chosen of each matrix."""
        plan = UnitPlan()
        for i, layer in enumerate(self.layers):
            plan.add(f"layer {i}", [part for matrix in layer for part in chosen(matrix)])
        for i, matrix in enumerate(self.head):
            plan.add(f"output head {i}", chosen(matrix))
        return plan

    def cache(self, plan: UnitPlan) -> DequantCache:
        """A dequant cache of these units.

        Raises:
            EngineConfigError: its bounds are too small.
        """
        return DequantCache(
            self.gguf,
            plan.units,
            self.team,
            self.stages,
            max_bytes=self.compute.dequant_cache_bytes,
            max_units=self.compute.dequant_cache_layers,
        )


class Projections(Protocol):
    """Gives out the projections of the layers and of the output head.

    Attributes:
        cache: of the weights that are dequantised; may be empty.
        numerics: identity of the arithmetic.
    """

    cache: DequantCache
    numerics: str

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection.

        Args:
            layer: which layer.
            index: which of the layer's matrices.
            bias: see `Bias`.
        """

    def head(self) -> PackedHead | list[Linear]:
        """The output head, packed or in slices."""


class F32Projections:
    """All weights go through the dequant cache. Implements `Projections`."""

    cache: DequantCache
    numerics: str

    def __init__(self, weights: ProjectionWeights) -> None:
        """Set up the cache and prove the matrix product.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        self._weights = weights
        self._plan = weights.plan(lambda matrix: [matrix])
        self.cache = weights.cache(self._plan)
        shapes = {matrix.shape for unit in self._plan.units for matrix in unit.matrices}
        self._matmul = choose_matmul(weights.compute.matmul, shapes, weights.team)
        self.numerics = f"f32, {self._matmul.numerics}"

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        matrix = self._weights.layers[layer][index]
        return _dequantised(self.cache, self._plan, matrix, self._matmul, bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head in slices, see `Projections`."""
        return _slices(self.cache, self._plan, self._weights.head, self._matmul)


class PackedProjections:
    """Packed weights; types without tiles are dequantised. Implements `Projections`."""

    cache: DequantCache
    numerics = "int8"

    def __init__(self, weights: ProjectionWeights) -> None:
        """Pack, or open what has been packed before.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        self._gguf, self._layers, self._head = weights.gguf, weights.layers, weights.head
        matrices = [*(matrix for layer in weights.layers for matrix in layer), *weights.head]
        # Each name once: a head is cut into slices of one tensor.
        packed = dict.fromkeys(
            source.name
            for matrix in matrices
            for source in matrix.sources
            if can_pack(self._gguf, matrix, source)
        )
        self._packed = open_packed(self._gguf, list(packed), weights.team) if packed else None
        self._tiles: dict[str, NDArray[np.int64]] = {}
        self._plan = weights.plan(lambda matrix: unpacked(self._gguf, matrix))
        self.cache = weights.cache(self._plan)
        self._matmul = CompiledMatmul(weights.team)

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        matrix = self._layers[layer][index]
        parts: list[PackedPart] = []
        others: list[Linear] = []
        column = 0
        for source in matrix.sources:
            if can_pack(self._gguf, matrix, source):
                parts.append(self._part(matrix, source, column))
            else:
                others.append(self._other(matrix, source, column, bias))
            column += source.last - source.first
        kind = PackedLinear if matrix.experts is None else PackedExpertLinear
        return kind(parts, others, column, bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head, see `Projections`."""
        matrix = self._head[0]
        if can_pack(self._gguf, matrix, matrix.sources[0]):
            name = matrix.sources[0].name
            whole = TensorRows(name, 0, self._gguf.tensors[name].rows)
            return PackedHead(self._part(matrix, whole, 0))
        return _slices(self.cache, self._plan, self._head, self._matmul)

    def _part(self, matrix: WeightMatrix, source: TensorRows, column: int) -> PackedPart:
        experts = matrix.experts or 1
        tensor = self._tensor(source.name).of_rows(source.first, experts * source.last)
        layout = layout_of(tensor.qtype)
        assert layout is not None, source
        if tensor.qtype.name not in self._tiles:
            self._tiles[tensor.qtype.name] = tile_table(tiles(tensor.qtype))
        return PackedPart(tensor, layout, self._tiles[tensor.qtype.name], column, experts)

    def _tensor(self, name: str) -> PackedTensor:
        assert self._packed is not None, f"{name} is not packed"
        return self._packed.tensor(name)

    def _other(self, matrix: WeightMatrix, source: TensorRows, column: int, bias: Bias) -> Linear:
        alone = WeightMatrix((source,), matrix.columns, matrix.experts)
        part = None if bias is None else bias[..., column : column + source.last - source.first]
        return _dequantised(self.cache, self._plan, alone, self._matmul, part, column)


class PlannedProjections:
    """No weights at all: where they would go is known, nothing is read. Implements `Projections`.

    Attributes:
        int8_plan: what would go through the dequant cache in mode "int8".
        f32_plan: the same in mode "f32", which is everything.
    """

    cache: DequantCache
    numerics = "plan"
    int8_plan: UnitPlan
    f32_plan: UnitPlan

    def __init__(self, weights: ProjectionWeights) -> None:
        self.cache = weights.cache(UnitPlan())
        self.int8_plan = weights.plan(lambda matrix: unpacked(weights.gguf, matrix))
        self.f32_plan = weights.plan(lambda matrix: [matrix])

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """There are none."""
        raise AssertionError("a model that is only planned computes nothing")

    def head(self) -> PackedHead | list[Linear]:
        """No slices, see `Projections`."""
        return []


def make_projections(weights: ProjectionWeights) -> Projections:
    """The projections in the mode asked for; errors as `F32Projections`."""
    match weights.compute.mode:
        case "int8":
            return PackedProjections(weights)
        case "f32":
            return F32Projections(weights)
        case "plan":
            return PlannedProjections(weights)


def can_pack(gguf: ModelFile, matrix: WeightMatrix, source: TensorRows) -> bool:
    """Whether there are tiles for the type, and the rows, or each expert's, begin a row block."""
    has_tiles = layout_of(gguf.tensors[source.name].qtype) is not None
    step = source.first if matrix.experts is None else source.last
    return has_tiles and step % ROW_BLOCK == 0


def unpacked(gguf: ModelFile, matrix: WeightMatrix) -> list[WeightMatrix]:
    """Those tensors of a matrix that are not packed, each a matrix of its own."""
    rest = [source for source in matrix.sources if not can_pack(gguf, matrix, source)]
    return [WeightMatrix((source,), matrix.columns, matrix.experts) for source in rest]


def _dequantised(
    cache: DequantCache,
    plan: UnitPlan,
    matrix: WeightMatrix,
    matmul: Matmul,
    bias: Bias = None,
    first_column: int = 0,
) -> Linear:
    """A projection by matrices of the dequant cache."""
    unit, index = plan.place(matrix)
    if matrix.experts is None:
        return F32Linear(cache, unit, index, matmul, bias, first_column)
    return F32ExpertLinear(cache, unit, matmul, bias, first_column)


def _slices(
    cache: DequantCache, plan: UnitPlan, head: Iterable[WeightMatrix], matmul: Matmul
) -> list[Linear]:
    """The output head from slices of its rows, one after the other."""
    return [
        _dequantised(cache, plan, matrix, matmul, None, matrix.sources[0].first) for matrix in head
    ]

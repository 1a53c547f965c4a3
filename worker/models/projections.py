"""The projections of a model, in the compute mode asked for."""

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.compute_config import ComputeConfig
from worker.dequant_cache import DequantCache, TensorRows, WeightMatrix, WeightUnit
from worker.gguf import GGUFFile
from worker.kernels.layouts import layout_of
from worker.kernels.projection_task import tile_table
from worker.kernels.tile import tiles
from worker.matmul import choose_matmul
from worker.packed_file import PackedTensor, open_packed
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .linear import F32Linear, Linear, PackedLinear, PackedPart
from .packed_head import PackedHead

Bias = NDArray[np.float32] | None


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
            bias: [outputs] float32, or None.
        """

    def head(self) -> PackedHead | list[Linear]:
        """The output head, packed or in slices."""


class F32Projections:
    """All weights go through the dequant cache. Implements `Projections`."""

    cache: DequantCache
    numerics: str

    def __init__(
        self,
        gguf: GGUFFile,
        layers: Sequence[WeightUnit],
        head: Sequence[WeightUnit],
        compute: ComputeConfig,
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        """Set up the cache and prove the matrix product.

        Args:
            gguf: the model's file.
            layers: matrices of each layer.
            head: matrices of the output head, cut by rows.
            compute: how to compute.
            team: threads to compute with.
            stages: stage records.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        units = [*layers, *head]
        self.cache = _cache(gguf, units, compute, team, stages)
        shapes = [matrix.shape for unit in units for matrix in unit.matrices]
        self._matmul = choose_matmul(compute.matmul, shapes, team)
        self._head = range(len(layers), len(units))
        self.numerics = f"f32, {self._matmul.numerics}"

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        return F32Linear(self.cache, layer, index, self._matmul, bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head in slices, see `Projections`."""
        slices: list[Linear] = []
        first = 0
        for unit in self._head:
            slices.append(F32Linear(self.cache, unit, 0, self._matmul, None, first))
            first += slices[-1].outputs
        return slices


class PackedProjections:
    """Packed weights; types without tiles are dequantised. Implements `Projections`."""

    cache: DequantCache
    numerics = "int8"

    def __init__(
        self,
        gguf: GGUFFile,
        layers: Sequence[WeightUnit],
        head: Sequence[WeightUnit],
        compute: ComputeConfig,
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        """Pack, or open what has been packed before; arguments and errors as `F32Projections`."""
        self._gguf, self._layers, self._head = gguf, layers, head
        # Each name once: a head is cut into slices of one tensor.
        packed = dict.fromkeys(name for unit in (*layers, *head) for name in _names(unit, gguf))
        self._packed = open_packed(gguf, list(packed), team) if packed else None
        self._tiles: dict[str, NDArray[np.int64]] = {}
        # What is not packed: a unit for each layer that has any, a matrix for each tensor.
        rest = [_unpacked(unit, packed) for unit in (*layers, *head)]
        self._units = {
            i: n for n, i in enumerate(i for i, unit in enumerate(rest) if unit.matrices)
        }
        self.cache = _cache(gguf, [u for u in rest if u.matrices], compute, team, stages)
        self._matmul = choose_matmul("compiled", (), team)

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        return self._linear(layer, self._layers[layer].matrices[index], bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head, see `Projections`."""
        name = self._head[0].matrices[0].sources[0].name
        if layout_of(self._gguf.tensors[name].qtype) is not None:
            return PackedHead(self._part(name, 0))
        slices: list[Linear] = []
        first = 0
        for i in range(len(self._head)):
            unit = self._units[len(self._layers) + i]
            slices.append(F32Linear(self.cache, unit, 0, self._matmul, None, first))
            first += slices[-1].outputs
        return slices

    def _linear(self, layer: int, matrix: WeightMatrix, bias: Bias) -> Linear:
        parts, others, column = [], [], 0
        for source in matrix.sources:
            if layout_of(self._gguf.tensors[source.name].qtype) is not None:
                parts.append(self._part(source.name, column))
            else:
                others.append(self._other(layer, source, column, bias))
            column += source.last - source.first
        return PackedLinear(parts, others, column, bias)

    def _part(self, name: str, column: int) -> PackedPart:
        tensor = self._tensor(name)
        layout = layout_of(tensor.qtype)
        assert layout is not None, name
        if tensor.qtype.name not in self._tiles:
            self._tiles[tensor.qtype.name] = tile_table(tiles(tensor.qtype))
        return PackedPart(tensor, layout, self._tiles[tensor.qtype.name], column)

    def _tensor(self, name: str) -> PackedTensor:
        assert self._packed is not None, f"{name} is not packed"
        return self._packed.tensor(name)

    def _other(self, layer: int, source: TensorRows, column: int, bias: Bias) -> F32Linear:
        unit = self._units[layer]
        matrices = self.cache.units[unit].matrices
        index = [matrix.sources[0].name for matrix in matrices].index(source.name)
        part = None if bias is None else bias[column : column + source.last - source.first]
        return F32Linear(self.cache, unit, index, self._matmul, part, column)


def make_projections(
    gguf: GGUFFile,
    layers: Sequence[WeightUnit],
    head: Sequence[WeightUnit],
    compute: ComputeConfig,
    team: ThreadTeam,
    stages: Stages,
) -> Projections:
    """The projections in the mode asked for; arguments and errors as `F32Projections`."""
    kind = PackedProjections if compute.mode == "int8" else F32Projections
    return kind(gguf, layers, head, compute, team, stages)


def _cache(
    gguf: GGUFFile,
    units: Sequence[WeightUnit],
    compute: ComputeConfig,
    team: ThreadTeam,
    stages: Stages,
) -> DequantCache:
    return DequantCache(
        gguf,
        units,
        team,
        stages,
        max_bytes=compute.dequant_cache_bytes,
        max_units=compute.dequant_cache_layers,
    )


def _names(unit: WeightUnit, gguf: GGUFFile) -> list[str]:
    """Tensors of a unit that can be packed."""
    names = [source.name for matrix in unit.matrices for source in matrix.sources]
    return [name for name in names if layout_of(gguf.tensors[name].qtype) is not None]


def _unpacked(unit: WeightUnit, packed: Collection[str]) -> WeightUnit:
    """A unit of those tensors that are not packed, each a matrix of its own."""
    matrices = [
        WeightMatrix((source,), matrix.columns)
        for matrix in unit.matrices
        for source in matrix.sources
        if source.name not in packed
    ]
    return WeightUnit(unit.name, tuple(matrices))

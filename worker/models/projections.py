"""The projections of a model, in the compute mode asked for."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from worker.compute_config import ComputeConfig
from worker.dequant_cache import DequantCache, TensorRows, WeightMatrix, WeightUnit
from worker.gguf import GGUFFile
from worker.kernels.layouts import layout_of
from worker.kernels.projection_task import tile_table
from worker.kernels.tile import tiles
from worker.matmul import CompiledMatmul, Matmul, choose_matmul
from worker.packed_file import PackedTensor, open_packed
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .linear import F32Linear, Linear, PackedLinear, PackedPart
from .packed_head import PackedHead

Bias = NDArray[np.float32] | None


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

    gguf: GGUFFile
    layers: Sequence[WeightUnit]
    head: Sequence[WeightUnit]
    compute: ComputeConfig
    team: ThreadTeam
    stages: Stages

    def cache(self, units: Sequence[WeightUnit]) -> DequantCache:
        """A dequant cache of some of the matrices.

        Raises:
            EngineConfigError: its bounds are too small.
        """
        return DequantCache(
            self.gguf,
            units,
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
            bias: [outputs] float32, or None.
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
        units = [*weights.layers, *weights.head]
        self.cache = weights.cache(units)
        shapes = [matrix.shape for unit in units for matrix in unit.matrices]
        self._matmul = choose_matmul(weights.compute.matmul, shapes, weights.team)
        self._head = range(len(weights.layers), len(units))
        self.numerics = f"f32, {self._matmul.numerics}"

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        return F32Linear(self.cache, layer, index, self._matmul, bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head in slices, see `Projections`."""
        return _slices(self.cache, self._head, self._matmul)


class PackedProjections:
    """Packed weights; types without tiles are dequantised. Implements `Projections`."""

    cache: DequantCache
    numerics = "int8"

    def __init__(self, weights: ProjectionWeights) -> None:
        """Pack, or open what has been packed before.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        gguf, layers, head = weights.gguf, weights.layers, weights.head
        self._gguf, self._layers, self._head = gguf, layers, head
        # Each name once: a head is cut into slices of one tensor.
        packed = dict.fromkeys(name for unit in (*layers, *head) for name in _names(unit, gguf))
        self._packed = open_packed(gguf, list(packed), weights.team) if packed else None
        self._tiles: dict[str, NDArray[np.int64]] = {}
        # What is not packed: a unit for each layer that has any, a matrix for each tensor.
        rest = [_unpacked(unit, packed) for unit in (*layers, *head)]
        self._units = {
            i: n for n, i in enumerate(i for i, unit in enumerate(rest) if unit.matrices)
        }
        self.cache = weights.cache([unit for unit in rest if unit.matrices])
        self._matmul = CompiledMatmul(weights.team)

    def linear(self, layer: int, index: int, bias: Bias = None) -> Linear:
        """A projection, see `Projections`."""
        return self._linear(layer, self._layers[layer].matrices[index], bias)

    def head(self) -> PackedHead | list[Linear]:
        """The output head, see `Projections`."""
        name = self._head[0].matrices[0].sources[0].name
        if layout_of(self._gguf.tensors[name].qtype) is not None:
            whole = TensorRows(name, 0, self._gguf.tensors[name].shape[0])
            return PackedHead(self._part(whole, 0))
        first = len(self._layers)
        units = [self._units[first + i] for i in range(len(self._head))]
        return _slices(self.cache, units, self._matmul)

    def _linear(self, layer: int, matrix: WeightMatrix, bias: Bias) -> Linear:
        parts, others, column = [], [], 0
        for source in matrix.sources:
            if layout_of(self._gguf.tensors[source.name].qtype) is not None:
                parts.append(self._part(source, column))
            else:
                others.append(self._other(layer, source, column, bias))
            column += source.last - source.first
        return PackedLinear(parts, others, column, bias)

    def _part(self, source: TensorRows, column: int) -> PackedPart:
        tensor = self._tensor(source.name).of_rows(source.first, source.last)
        layout = layout_of(tensor.qtype)
        assert layout is not None, source
        if tensor.qtype.name not in self._tiles:
            self._tiles[tensor.qtype.name] = tile_table(tiles(tensor.qtype))
        return PackedPart(tensor, layout, self._tiles[tensor.qtype.name], column)

    def _tensor(self, name: str) -> PackedTensor:
        assert self._packed is not None, f"{name} is not packed"
        return self._packed.tensor(name)

    def _other(self, layer: int, source: TensorRows, column: int, bias: Bias) -> F32Linear:
        unit = self._units[layer]
        matrices = self.cache.units[unit].matrices
        index = [matrix.sources[0] for matrix in matrices].index(source)
        part = None if bias is None else bias[column : column + source.last - source.first]
        return F32Linear(self.cache, unit, index, self._matmul, part, column)


def make_projections(weights: ProjectionWeights) -> Projections:
    """The projections in the mode asked for; errors as `F32Projections`."""
    kind = PackedProjections if weights.compute.mode == "int8" else F32Projections
    return kind(weights)


def _slices(cache: DequantCache, units: Iterable[int], matmul: Matmul) -> list[Linear]:
    """The output head from slices of its rows, one after the other."""
    slices: list[Linear] = []
    first = 0
    for unit in units:
        slices.append(F32Linear(cache, unit, 0, matmul, None, first))
        first += slices[-1].outputs
    return slices


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

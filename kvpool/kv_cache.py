"""The K/V arrays: one preallocated pair for each layer group."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .ids import BlockId
from .layer_group import LayerGroup
from .recurrent_state import StateCache

KVDtype = Literal["float32", "float16"]
"""Type of the numbers in the K/V arrays."""


class KVCache:
    """Keys and values of all tokens in flight, addressed by block and offset.

    The arrays are reserved at once and never moved, grown or gathered. The operating system gives
    them memory page by page, when a block is first written. A block that is given back keeps
    its old values: readers must stop at a sequence's length.

    A block holds its keys dimension by dimension and its values slot by slot: attention takes many
    slots of one dimension of the keys at a time, and many dimensions of one slot of the values.

    Attributes:
        groups: the layer groups, in the order of ``keys`` and ``values``.
        block_size: tokens a block.
        dtype: of the arrays.
        keys: per group ``[layers in group, blocks, kv_heads, head_dim, block_size]``.
        values: per group ``[layers in group, blocks, kv_heads, block_size, head_dim]``.
        states: of the layers that have a recurrent state instead; None where there are none.
    """

    groups: tuple[LayerGroup, ...]
    block_size: int
    dtype: KVDtype
    keys: tuple[NDArray[Any], ...]
    values: tuple[NDArray[Any], ...]
    states: StateCache | None

    def __init__(
        self,
        groups: Sequence[LayerGroup],
        num_blocks: Sequence[int],
        block_size: int,
        dtype: KVDtype = "float32",
        states: StateCache | None = None,
    ) -> None:
        assert len(groups) == len(num_blocks), (groups, num_blocks)
        self.groups = tuple(groups)
        self.block_size = block_size
        self.dtype = dtype
        self.states = states
        starts = [
            (len(group.layers), count, group.num_kv_heads)
            for group, count in zip(groups, num_blocks, strict=True)
        ]
        dims = [group.head_dim for group in groups]
        # zeros, not empty: calloc is as lazy, and a slot never written can hold no NaN.
        self.keys = tuple(
            np.zeros((*start, dim, block_size), dtype)
            for start, dim in zip(starts, dims, strict=True)
        )
        self.values = tuple(
            np.zeros((*start, block_size, dim), dtype)
            for start, dim in zip(starts, dims, strict=True)
        )
        self._places = {
            layer: (g, index)
            for g, group in enumerate(groups)
            for index, layer in enumerate(group.layers)
        }

    @property
    def n_bytes(self) -> int:
        """Bytes reserved; those in use can be fewer, see the class."""
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def copy_block(self, group: int, source: BlockId, target: BlockId) -> None:
        """Copy one block's K/V of all layers of a group; what the block held before is gone."""
        for array in (self.keys[group], self.values[group]):
            array[:, target] = array[:, source]

    def copy(self) -> "KVCache":
        """A cache of the same content and memory of its own: neither sees what the other writes."""
        return deepcopy(self)

    __copy__ = copy

    def layer(self, layer_index: int) -> tuple[int, int]:
        """Where a model layer lies: (group index, index within the group)."""
        return self._places[layer_index]

"""The K/V arrays: one preallocated pair for each layer group."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .layer_group import LayerGroup


class KVCache:
    """Keys and values of all tokens in flight, addressed by block and offset.

    The arrays are reserved at once and never moved, grown or gathered. The operating system gives
    them memory page by page, when a block is first written. A block that is given back keeps
    its old values: readers must stop at a sequence's length.

    Attributes:
        groups: the layer groups, in the order of ``keys`` and ``values``.
        block_size: tokens a block.
        keys: per group ``[layers in group, blocks, kv_heads, block_size, head_dim]``.
        values: the same shapes.
    """

    groups: tuple[LayerGroup, ...]
    block_size: int
    keys: tuple[NDArray[np.float32], ...]
    values: tuple[NDArray[np.float32], ...]

    def __init__(
        self, groups: Sequence[LayerGroup], num_blocks: Sequence[int], block_size: int
    ) -> None:
        assert len(groups) == len(num_blocks), (groups, num_blocks)
        self.groups = tuple(groups)
        self.block_size = block_size
        shapes = [_shape(g, n, block_size) for g, n in zip(groups, num_blocks, strict=True)]
        # zeros, not empty: calloc is as lazy, and a slot never written can hold no NaN.
        self.keys = tuple(np.zeros(shape, np.float32) for shape in shapes)
        self.values = tuple(np.zeros(shape, np.float32) for shape in shapes)
        self._places = {
            layer: (g, index)
            for g, group in enumerate(groups)
            for index, layer in enumerate(group.layers)
        }

    @property
    def n_bytes(self) -> int:
        """Bytes reserved; those in use can be fewer, see the class."""
        return sum(array.nbytes for array in (*self.keys, *self.values))

    def layer(self, layer_index: int) -> tuple[int, int]:
        """Where a model layer lies: (group index, index within the group)."""
        return self._places[layer_index]


def _shape(group: LayerGroup, num_blocks: int, block_size: int) -> tuple[int, ...]:
    return (len(group.layers), num_blocks, group.num_kv_heads, block_size, group.head_dim)

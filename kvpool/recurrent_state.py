"""The recurrent state of layers that keep no keys and values, beside the blocks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_CHANGING = -1  # tokens of a state that a step is changing


@dataclass(frozen=True, slots=True)
class StateShape:
    """What a sequence's state is made of, in float32.

    Attributes:
        layers: indices of the model's layers that have a state, ascending.
        inputs: tokens before the next one whose inputs a layer's convolution still needs.
        channels: of the convolution.
        heads: of the memory.
        key_dim: rows of a head's memory.
        value_dim: columns of a head's memory.
    """

    layers: tuple[int, ...]
    inputs: int
    channels: int
    heads: int
    key_dim: int
    value_dim: int

    @property
    def n_bytes(self) -> int:
        """Bytes of one sequence's state."""
        memory = self.heads * self.key_dim * self.value_dim
        return 4 * len(self.layers) * (self.inputs * self.channels + memory)


class StateCache:
    """States of all sequences in flight, a slot each; reserved at once, as `KVCache` is.

    A slot that is given back keeps what was in it: who starts at position 0 must begin with zeros.

    Attributes:
        shape: of a state.
        inputs: float32 ``[layers, slots, inputs, channels]``, the oldest token first.
        memories: float32 ``[layers, slots, heads, key_dim, value_dim]``; within a head the order is
            the kernel's.
    """

    shape: StateShape
    inputs: NDArray[np.float32]
    memories: NDArray[np.float32]

    def __init__(self, shape: StateShape, slots: int) -> None:
        self.shape = shape
        start = len(shape.layers), slots
        self.inputs = np.zeros((*start, shape.inputs, shape.channels), np.float32)
        memory = shape.heads, shape.key_dim, shape.value_dim
        self.memories = np.zeros((*start, *memory), np.float32)
        self._tokens = np.zeros(slots, np.int64)
        self._places = {layer: index for index, layer in enumerate(shape.layers)}

    @property
    def slots(self) -> int:
        """Sequences that have a state at the same time."""
        return int(self.inputs.shape[1])

    def copy_state(self, source: int, target: int) -> None:
        """Copy a state of all layers; what the slot held before is gone."""
        for array in (self.inputs, self.memories):
            array[:, target] = array[:, source]
        self._tokens[target] = self._tokens[source]

    def begin_step(self, slots: NDArray[np.int32], starts: NDArray[np.int32]) -> None:
        """Check that states are those after the tokens before `starts`, or begin anew at 0.

        A step that is not ended leaves states that nobody may go on with: unlike keys and values,
        they cannot be written a second time.
        """
        tokens = self._tokens[slots]
        assert ((starts == 0) | (tokens == starts)).all(), (
            f"states of {tokens} tokens cannot go on at {starts}: a step that was broken off has "
            "changed them; make a new engine"
        )
        self._tokens[slots] = _CHANGING

    def end_step(self, slots: NDArray[np.int32], ends: NDArray[np.int32]) -> None:
        """Take note of the tokens that states have taken in."""
        self._tokens[slots] = ends

    def layer(self, layer_index: int) -> int:
        """Where a model layer lies in the arrays."""
        return self._places[layer_index]

"""The causal convolution in front of a recurrent layer: each channel over its last few inputs.

An item is a sequence and a part of its channels. It walks the sequence's tokens in order; what came
before the step's first token is in the sequence's state.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .memory import int32_at
from .native import float32s, task, word
from .vector import add8, div8, exp8, fma8, load8, load_part, mul8, splat8, store8, store_part

CHANNELS_AN_ITEM = 256

# Arguments of `convolution_task`, in this order.
(
    X,
    X_STRIDE,
    OUT,
    OUT_STRIDE,
    WEIGHT,
    CHANNELS,
    INPUTS,
    STATES,
    STATE_SLOTS,
    QUERY_START,
    POSITIONS,
    PARTS,
) = range(12)


@task
def convolution_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Convolve some channels of a sequence, and apply SiLU.

    Arguments: x (float32 rows that start with the channels) and its stride in bytes; out and its
    stride; weight float32 [inputs + 1, channels], for the oldest token first; channels; inputs, the
    tokens before one that it sees; a layer's states float32 [slots, inputs, channels]; int32
    [sequences], the slot of each; int32 [sequences + 1], where their tokens begin; int32 [tokens],
    positions; items of a sequence.
    """
    parts, channels = word(arguments, PARTS), word(arguments, CHANNELS)
    sequence, part = item // parts, item % parts
    first = part * CHANNELS_AN_ITEM
    width = min(CHANNELS_AN_ITEM, channels - first)
    slot = int32_at(word(arguments, STATE_SLOTS), sequence)
    inputs = word(arguments, INPUTS)
    state = word(arguments, STATES) + 4 * (slot * inputs * channels + first)
    begin = int32_at(word(arguments, QUERY_START), sequence)
    end = int32_at(word(arguments, QUERY_START), sequence + 1)
    if int32_at(word(arguments, POSITIONS), begin) == 0:
        for i in range(inputs):
            _fill(float32s(state + 4 * i * channels, width))
    for t in range(begin, end):
        x = word(arguments, X) + t * word(arguments, X_STRIDE) + 4 * first
        out = word(arguments, OUT) + t * word(arguments, OUT_STRIDE) + 4 * first
        weight = word(arguments, WEIGHT) + 4 * first
        _convolve(state, x, weight, float32s(out, width), inputs, channels)
        _shift(state, x, width, inputs, channels)


@kernel
def _fill(values: NDArray[np.float32]) -> None:
    for i in range(values.size):
        values[i] = np.float32(0.0)


@kernel
def _convolve(
    state: int, x: int, weight: int, out: NDArray[np.float32], inputs: int, channels: int
) -> None:
    """Write silu of the weighted sum of the inputs in the state and of x, the oldest first."""
    width = out.size
    for c in range(0, width, 8):
        count = min(8, width - c)
        total = splat8(np.float32(0.0))
        for i in range(inputs + 1):
            row = state + 4 * i * channels if i < inputs else x
            w = _load(weight + 4 * i * channels, c, count, width)
            total = fma8(_load(row, c, count, width), w, total)
        value = silu8(total)
        if count == 8:
            store8(out, c, value)
        else:
            store_part(out, c, count, value)


@kernel
def _load(row: int, first: int, count: int, width: int) -> Any:
    values = float32s(row, width)
    return load8(values, first) if count == 8 else load_part(values, first, count)


@kernel
def _shift(state: int, x: int, width: int, inputs: int, channels: int) -> None:
    """Forget the oldest input of the state, and keep x as the newest."""
    for i in range(inputs):
        target = float32s(state + 4 * i * channels, width)
        source = float32s(state + 4 * (i + 1) * channels if i + 1 < inputs else x, width)
        for c in range(width):
            target[c] = source[c]


@kernel
def silu8(x: Any) -> Any:
    """X / (1 + e^-x) in each lane."""
    return mul8(x, sigmoid8(x))


@kernel
def sigmoid8(x: Any) -> Any:
    """1 / (1 + e^-x) in each lane."""
    one = splat8(np.float32(1.0))
    return div8(one, add8(one, exp8(mul8(x, splat8(np.float32(-1.0))))))

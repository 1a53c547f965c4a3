"""The activations of feed-forward layers, gated (Shazeer, 2020) or not."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .native import float32s, real, task, word
from .vector import (
    add8,
    div8,
    exp8,
    fma8,
    load8,
    load_part,
    mul8,
    splat8,
    store8,
    store_part,
)

Activation = Literal["silu", "gelu_tanh", "quick_gelu"]

# gelu(x) = x / 2 * (1 + tanh(u)) = x / (1 + e^(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3)
_GELU_LINEAR = np.float32(-2.0 * 0.7978845608028654)
_GELU_CUBIC = np.float32(-2.0 * 0.7978845608028654 * 0.044715)
_SLOPES = {"silu": np.float32(-1.0), "quick_gelu": np.float32(-1.702)}


def factors(activation: Activation) -> tuple[np.float32, np.float32]:
    """Give the two numbers that an activation is computed from, see `gated`."""
    if activation == "gelu_tanh":
        return _GELU_LINEAR, _GELU_CUBIC
    return _SLOPES[activation], np.float32(0.0)


@kernel
def gated(
    gate_up: NDArray[np.float32],
    out: NDArray[np.float32],
    tokens: int,
    width: int,
    linear: np.float32,
    cubic: np.float32,
) -> None:
    """Compute out = g / (1 + exp(linear g + cubic g^3)) * u for flat arrays."""
    whole = width // 8 * 8
    rest = width - whole
    for t in range(tokens):
        gate = 2 * t * width
        for i in range(0, whole, 8):
            value = _gate(load8(gate_up, gate + i), linear, cubic)
            store8(out, t * width + i, mul8(value, load8(gate_up, gate + width + i)))
        if rest > 0:
            value = _gate(load_part(gate_up, gate + whole, rest), linear, cubic)
            value = mul8(value, load_part(gate_up, gate + width + whole, rest))
            store_part(out, t * width + whole, rest, value)


@kernel
def _gate(g: Any, linear: np.float32, cubic: np.float32) -> Any:
    """Compute g / (1 + exp(linear g + cubic g^3)) in each lane."""
    slope = fma8(mul8(g, g), splat8(cubic), splat8(linear))
    return div8(g, add8(splat8(np.float32(1.0)), exp8(mul8(g, slope))))


@kernel
def activated(
    x: NDArray[np.float32], out: NDArray[np.float32], linear: np.float32, cubic: np.float32
) -> None:
    """Compute out = x / (1 + exp(linear x + cubic x^3)); shapes: x and out [width]."""
    whole = x.size // 8 * 8
    for i in range(0, whole, 8):
        store8(out, i, _gate(load8(x, i), linear, cubic))
    if whole < x.size:
        rest = x.size - whole
        store_part(out, whole, rest, _gate(load_part(x, whole, rest), linear, cubic))


# Arguments of `gated_activation_task` and of `activation_task`, in this order.
X, X_STRIDE, OUT, OUT_STRIDE, WIDTH, LINEAR, CUBIC, ROWS_WORD, ROWS_AN_ITEM_WORD = range(9)


@task
def gated_activation_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Apply activation(gate) * up to rows.

    Arguments: gate and up side by side, and their stride in bytes; out and its stride; width of
    out; the activation's factors; header words with the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        gate_up = float32s(word(arguments, X) + row * word(arguments, X_STRIDE), 2 * width)
        out = float32s(word(arguments, OUT) + row * word(arguments, OUT_STRIDE), width)
        gated(gate_up, out, 1, width, real(arguments, LINEAR), real(arguments, CUBIC))


@task
def activation_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Apply activation(x) to rows.

    Arguments: x and its stride in bytes; out and its stride; their width; the activation's factors;
    header words with the number of rows and the rows of an item.
    """
    width = word(arguments, WIDTH)
    rows_an_item = word(header, word(arguments, ROWS_AN_ITEM_WORD))
    first = item * rows_an_item
    last = min(first + rows_an_item, word(header, word(arguments, ROWS_WORD)))
    for row in range(first, last):
        x = float32s(word(arguments, X) + row * word(arguments, X_STRIDE), width)
        out = float32s(word(arguments, OUT) + row * word(arguments, OUT_STRIDE), width)
        activated(x, out, real(arguments, LINEAR), real(arguments, CUBIC))

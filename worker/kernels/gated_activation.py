"""The gated activations of feed-forward layers (Shazeer, 2020)."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel
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

Activation = Literal["silu", "gelu_tanh"]

# gelu(x) = x / 2 * (1 + tanh(u)) = x / (1 + e^(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3)
_GELU_LINEAR = np.float32(-2.0 * 0.7978845608028654)
_GELU_CUBIC = np.float32(-2.0 * 0.7978845608028654 * 0.044715)


def gated_activation(
    gate_up: NDArray[np.float32], out: NDArray[np.float32], activation: Activation
) -> None:
    """Compute out = activation(gate) * up.

    Args:
        gate_up: [tokens, 2 * width] float32, C-contiguous: gate, then up.
        out: [tokens, width] float32, C-contiguous.
        activation: "silu" (SwiGLU), or "gelu_tanh" (GeGLU with the tanh approximation).
    """
    tokens, width = out.shape
    assert gate_up.shape == (tokens, 2 * width), (gate_up.shape, out.shape)
    linear = np.float32(-1.0) if activation == "silu" else _GELU_LINEAR
    cubic = np.float32(0.0) if activation == "silu" else _GELU_CUBIC
    gated(flat(gate_up), flat(out), tokens, width, linear, cubic)


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

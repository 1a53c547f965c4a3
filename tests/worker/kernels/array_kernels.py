"""Kernels on whole arrays, as tests call them; models run the same code in tasks.

Each checks its arrays and computes them at once, on the caller's thread.
"""

import numpy as np

from worker.kernels.attention import attention_task
from worker.kernels.attention_arguments import attention_arguments, attention_scratch
from worker.kernels.flat import flat
from worker.kernels.gated_activation import activated, factors, gated
from worker.kernels.jit import kernel
from worker.kernels.layer_norm import layer_normalize_row
from worker.kernels.native import address_of, call_native
from worker.kernels.rms_norm import normalize_row
from worker.kernels.rope import rotate_head
from worker.kernels.soft_cap import soft_cap_values


def rms_norm(x, weight, out, eps, first_column=0, vectors=1):
    """Divide vectors by their root mean square and multiply them by `weight`.

    A row of x may hold several vectors side by side (the heads of a projection); each is normalised
    by itself. Columns of `out` outside these vectors are left as they are. A vector whose squares
    overflow becomes NaN.

    Args:
        x: [tokens, columns] float32, C-contiguous.
        weight: [width] float32.
        out: [tokens, columns] float32, C-contiguous; may be x.
        eps: added to the mean of squares.
        first_column: where the first vector of a row starts.
        vectors: vectors of `width` values in a row.
    """
    tokens, columns = x.shape
    width = len(weight)
    assert out.shape == x.shape, (out.shape, x.shape)
    assert first_column + vectors * width <= columns, (first_column, vectors, width, columns)
    shape = (tokens, columns, first_column, vectors, width)
    _rms_norm(flat(x), weight, flat(out), *shape, np.float32(eps))


@kernel
def _rms_norm(x, weight, out, tokens, columns, first_column, vectors, width, eps):
    """Shapes: x and out [tokens * columns], weight [width]."""
    for t in range(tokens):
        for v in range(vectors):
            start = t * columns + first_column + v * width
            stop = start + width
            normalize_row(x[start:stop], weight, out[start:stop], eps)


def layer_norm(x, weight, bias, out, eps):
    """Take off each row's mean, divide by its deviation, multiply by `weight` and add `bias`.

    A row whose squares overflow becomes NaN.

    Args:
        x: [rows, width] float32, C-contiguous.
        weight: [width] float32.
        bias: [width] float32; None for none.
        out: [rows, width] float32, C-contiguous; may be x.
        eps: added to the variance.
    """
    assert out.shape == x.shape, (out.shape, x.shape)
    assert weight.shape == x.shape[1:], (weight.shape, x.shape)
    assert bias is None or bias.shape == weight.shape, (bias.shape, weight.shape)
    shift = np.empty(0, np.float32) if bias is None else bias
    _layer_norm(flat(x), weight, shift, flat(out), np.float32(eps))


@kernel
def _layer_norm(x, weight, bias, out, eps):
    """Shapes: x and out [rows * width], weight [width], bias [width] or [0]."""
    width = weight.size
    for start in range(0, x.size, width):
        row = out[start : start + width]
        layer_normalize_row(x[start : start + width], weight, bias, row, eps)


def rope(x, positions, cos, sin, heads, head_dim, distance):
    """Rotate the first `heads` heads of each row of x in place, by the angles of its position.

    Pair i of a head is rotated by angle i. Its members lie side by side (2 i and 2 i + 1, ``llama``
    files: `distance` 1), or half the rotated width apart (i and i + n, ``gemma3``: `distance` n).

    Args:
        x: [tokens, columns] float32, C-contiguous, starting with heads * head_dim columns.
        positions: [tokens] int32.
        cos: [length, n] float32, cosine of the angles of each position; 2 n values a head rotate.
        sin: [length, n] float32.
        heads: heads to rotate.
        head_dim: values of a head.
        distance: 1 or n.
    """
    tokens, columns = x.shape
    angles = cos.shape[1]
    assert sin.shape == cos.shape, (sin.shape, cos.shape)
    assert positions.shape == (tokens,), (positions.shape, tokens)
    assert heads * head_dim <= columns, (heads, head_dim, columns)
    assert 2 * angles <= head_dim, (angles, head_dim)
    assert distance in (1, angles), (distance, angles)
    shape = (columns, heads, head_dim, angles, distance)
    _rope(flat(x), positions, flat(cos), flat(sin), *shape)


@kernel
def _rope(x, positions, cos, sin, columns, heads, head_dim, angles, distance):
    """Shapes: x [tokens * columns], positions [tokens], cos and sin [length * angles]."""
    for t in range(len(positions)):
        row = positions[t] * angles
        for h in range(heads):
            start = t * columns + h * head_dim
            rotate_head(
                x[start : start + 2 * angles],
                cos[row : row + angles],
                sin[row : row + angles],
                distance,
            )


def gated_activation(gate_up, out, activation):
    """Compute out = activation(gate) * up.

    Args:
        gate_up: [tokens, 2 * width] float32, C-contiguous: gate, then up.
        out: [tokens, width] float32, C-contiguous.
        activation: "silu" (SwiGLU), or "gelu_tanh" (GeGLU with the tanh approximation).
    """
    tokens, width = out.shape
    assert gate_up.shape == (tokens, 2 * width), (gate_up.shape, out.shape)
    gated(flat(gate_up), flat(out), tokens, width, *factors(activation))


def activate(x, out, activation):
    """Apply the activation to x; float32, C-contiguous, of one shape; out may be x."""
    assert out.shape == x.shape, (out.shape, x.shape)
    activated(flat(x), flat(out), *factors(activation))


def soft_cap(x, cap):
    """Replace x by cap * tanh(x / cap), in place; infinity becomes NaN.

    Args:
        x: float32, C-contiguous.
        cap: bound of the results, above 0.
    """
    assert cap > 0, cap
    soft_cap_values(flat(x), np.float32(cap))


def attention(qkv, keys, values, out, table, positions, items, window, scale, cap, sinks=None):
    """Attend from the queries of some work items; see `attention_arguments` for the arrays.

    out has heads * head_dim columns, and `table` as many as it has.
    """
    heads, kv_heads, head_dim = out.shape[1] // values.shape[3], values.shape[1], values.shape[3]
    scratch = attention_scratch(1, heads, kv_heads, head_dim)
    header = np.array([table.shape[1]], np.int64)
    arguments = attention_arguments(
        qkv, keys, values, out, table, positions, items, scratch, heads=heads,
        table_stride_word=0, window=window, scale=scale, cap=cap, sinks=sinks,
    )  # fmt: skip
    run_items(attention_task.address, address_of(header), address_of(arguments), 0, len(items))


@kernel
def run_items(task, header, arguments, first, end):
    """Run items first to end - 1 of a task, given by addresses, as thread 0."""
    for item in range(first, end):
        call_native(task, (header, arguments, np.int64(item), np.int64(0)))

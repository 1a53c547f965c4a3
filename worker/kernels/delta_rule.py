"""The gated delta rule (Yang et al., 2024): a head's memory, read and corrected token by token.

With the memory S [key_dim, value_dim], a token's key k and query q of length 1, its value v, its
decay g and its rate b, both between 0 and 1::

    S = g S;   S = S + k (b (v - S^T k))^T;   o = S^T q / sqrt(key_dim)

A head's memory lies in blocks of 32 columns, row after row, the rest of the columns behind them: a
block stays in the nearest cache while it is read and corrected.

An item is a sequence and a head. It walks the sequence's tokens in order, one by one: so a memory
has the same bits however the sequence was cut into steps. Lanes are columns of the memory and no
sum runs across them but those of the norms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .memory import int32_at
from .native import float32s, real, task, word
from .rms_norm import normalize_row, sum_of_squares
from .short_convolution import sigmoid8, silu8
from .vector import (
    exp8,
    fma8,
    greatest8,
    load8,
    load_part,
    mul8,
    splat8,
    store8,
    store_part,
    sub8,
)

# Arguments of `delta_rule_task`, in this order.
(
    QKV,
    QKV_STRIDE,
    GATES,
    GATES_STRIDE,
    OUT,
    OUT_STRIDE,
    DECAY,
    DECAY_BIAS,
    NORM,
    EPS,
    KEY_HEADS,
    HEADS,
    KEY_DIM,
    VALUE_DIM,
    MEMORIES,
    STATE_SLOTS,
    QUERY_START,
    POSITIONS,
    SCRATCH,
    SCRATCH_BYTES,
) = range(20)


def scratch_bytes(key_dim: int) -> int:
    """Bytes of scratch memory of a thread: query and key."""
    return -(-8 * key_dim // 64) * 64


@task
def delta_rule_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Take a head of a sequence through the step's tokens.

    Arguments: float32 rows of the query heads, the key heads and the value heads side by side, and
    their stride in bytes; float32 rows of the output's gate [heads, value_dim], the rate [heads]
    and the decay [heads] side by side, before their activations, and their stride; out (float32
    rows [heads, value_dim]) and its stride; factor [heads] and bias [heads] of the decay; weight
    [value_dim] and eps of the norm of the result; key heads (value head h has key head h modulo
    these); value heads; values of a key and of a value; a layer's memories float32 [slots, heads,
    key_dim, value_dim]; int32 [sequences], the slot of each; int32 [sequences + 1], where their
    tokens begin; int32 [tokens], positions; scratch and its bytes for a thread.
    """
    heads, key_dim = word(arguments, HEADS), word(arguments, KEY_DIM)
    value_dim = word(arguments, VALUE_DIM)
    sequence, head = item // heads, item % heads
    slot = int32_at(word(arguments, STATE_SLOTS), sequence)
    size = key_dim * value_dim
    memory = float32s(word(arguments, MEMORIES) + 4 * size * (slot * heads + head), size)
    begin = int32_at(word(arguments, QUERY_START), sequence)
    end = int32_at(word(arguments, QUERY_START), sequence + 1)
    if int32_at(word(arguments, POSITIONS), begin) == 0:
        for i in range(size):
            memory[i] = np.float32(0.0)
    scratch = word(arguments, SCRATCH) + thread * word(arguments, SCRATCH_BYTES)
    for t in range(begin, end):
        _take_token(arguments, memory, scratch, t, head)


@kernel
def _take_token(
    arguments: int, memory: NDArray[np.float32], scratch: int, token: int, head: int
) -> None:
    """Take a head through one token, and write its normalised and gated result."""
    key_heads, heads = word(arguments, KEY_HEADS), word(arguments, HEADS)
    key_dim, value_dim = word(arguments, KEY_DIM), word(arguments, VALUE_DIM)
    row = word(arguments, QKV) + token * word(arguments, QKV_STRIDE)
    query, key = float32s(scratch, key_dim), float32s(scratch + 4 * key_dim, key_dim)
    place = row + 4 * (head % key_heads) * key_dim
    scale = np.float32(1.0) / np.sqrt(np.float32(key_dim))
    _to_length(float32s(place, key_dim), query, real(arguments, EPS), scale)
    place += 4 * key_heads * key_dim
    _to_length(float32s(place, key_dim), key, real(arguments, EPS), np.float32(1.0))
    value = float32s(row + 4 * (2 * key_heads * key_dim + head * value_dim), value_dim)
    gates = word(arguments, GATES) + token * word(arguments, GATES_STRIDE)
    rates = float32s(gates + 4 * heads * value_dim, 2 * heads)
    rate = greatest8(sigmoid8(splat8(rates[head])))
    speed = softplus(rates[heads + head] + float32s(word(arguments, DECAY_BIAS), heads)[head])
    factor = float32s(word(arguments, DECAY), heads)[head]
    decay = greatest8(exp8(splat8(factor * speed)))
    place = word(arguments, OUT) + token * word(arguments, OUT_STRIDE) + 4 * head * value_dim
    out = float32s(place, value_dim)
    whole = value_dim // 32 * 32
    for column in range(0, whole, 32):
        _correct_32(memory, query, key, value, out, column, splat8(decay), splat8(rate))
    for column in range(whole, value_dim, 8):
        _correct_8(memory, query, key, value, out, column, whole, splat8(decay), splat8(rate))
    normalize_row(out, float32s(word(arguments, NORM), value_dim), out, real(arguments, EPS))
    _gate(out, float32s(gates + 4 * head * value_dim, value_dim))


@kernel
def _correct_32(
    memory: NDArray[np.float32],
    query: NDArray[np.float32],
    key: NDArray[np.float32],
    value: NDArray[np.float32],
    out: NDArray[np.float32],
    column: int,
    decay: Any,
    rate: Any,
) -> None:
    """Decay and correct 32 columns of the memory, and read them with the query.

    Four chains of sums side by side keep the core busy; each is that of `_correct_8`.
    """
    first = column * key.size
    a = b = c = d = splat8(np.float32(0.0))
    for i in range(key.size):
        at, k = first + 32 * i, splat8(key[i])
        a = fma8(mul8(load8(memory, at), decay), k, a)
        b = fma8(mul8(load8(memory, at + 8), decay), k, b)
        c = fma8(mul8(load8(memory, at + 16), decay), k, c)
        d = fma8(mul8(load8(memory, at + 24), decay), k, d)
    a = mul8(sub8(load8(value, column), a), rate)
    b = mul8(sub8(load8(value, column + 8), b), rate)
    c = mul8(sub8(load8(value, column + 16), c), rate)
    d = mul8(sub8(load8(value, column + 24), d), rate)
    o = p = q = r = splat8(np.float32(0.0))
    for i in range(key.size):
        at, k, read = first + 32 * i, splat8(key[i]), splat8(query[i])
        o = fma8(_corrected(memory, at, decay, a, k), read, o)
        p = fma8(_corrected(memory, at + 8, decay, b, k), read, p)
        q = fma8(_corrected(memory, at + 16, decay, c, k), read, q)
        r = fma8(_corrected(memory, at + 24, decay, d, k), read, r)
    store8(out, column, o)
    store8(out, column + 8, p)
    store8(out, column + 16, q)
    store8(out, column + 24, r)


@kernel
def _corrected(memory: NDArray[np.float32], at: int, decay: Any, missing: Any, key: Any) -> Any:
    """Decay and correct eight cells in place, and give them."""
    cells = fma8(missing, key, mul8(load8(memory, at), decay))
    store8(memory, at, cells)
    return cells


@kernel
def _correct_8(
    memory: NDArray[np.float32],
    query: NDArray[np.float32],
    key: NDArray[np.float32],
    value: NDArray[np.float32],
    out: NDArray[np.float32],
    column: int,
    whole: int,
    decay: Any,
    rate: Any,
) -> None:
    """Decay and correct up to eight of the columns behind `whole`, and read them with the query."""
    width, count = value.size - whole, min(8, value.size - column)
    first = whole * key.size + column - whole
    known = splat8(np.float32(0.0))
    for i in range(key.size):
        cells = mul8(_load(memory, first + i * width, count), decay)
        known = fma8(cells, splat8(key[i]), known)
    missing = mul8(sub8(_load(value, column, count), known), rate)
    result = splat8(np.float32(0.0))
    for i in range(key.size):
        at = first + i * width
        cells = fma8(missing, splat8(key[i]), mul8(_load(memory, at, count), decay))
        _store(memory, at, count, cells)
        result = fma8(cells, splat8(query[i]), result)
    _store(out, column, count, result)


@kernel
def _to_length(
    x: NDArray[np.float32], out: NDArray[np.float32], eps: np.float32, length: np.float32
) -> None:
    """Write x scaled to a length; a vector whose squares overflow becomes NaN."""
    total = sum_of_squares(x, 0, x.size)
    root = np.sqrt(total + eps) if total < np.inf else np.float32(np.nan)
    scale = length / root
    for i in range(x.size):
        out[i] = x[i] * scale


@kernel
def _gate(out: NDArray[np.float32], gate: NDArray[np.float32]) -> None:
    """Multiply by silu(gate)."""
    for i in range(0, out.size, 8):
        count = min(8, out.size - i)
        _store(out, i, count, mul8(_load(out, i, count), silu8(_load(gate, i, count))))


@kernel
def softplus(x: np.float32) -> Any:
    """ln(1 + e^x), within some units in the last place: x or 0, and ln(1 + u) with u = e^-|x|.

    ln(1 + u) = 2 (z + z^3 / 3 + z^5 / 5 + ...) with z = u / (2 + u), at most 1/3.
    """
    u = greatest8(exp8(splat8(-abs(x))))
    z = u / (np.float32(2.0) + u)
    square = z * z
    series = np.float32(1.0 / 17.0)
    series = series * square + np.float32(1.0 / 15.0)
    series = series * square + np.float32(1.0 / 13.0)
    series = series * square + np.float32(1.0 / 11.0)
    series = series * square + np.float32(1.0 / 9.0)
    series = series * square + np.float32(1.0 / 7.0)
    series = series * square + np.float32(1.0 / 5.0)
    series = series * square + np.float32(1.0 / 3.0)
    series = series * square + np.float32(1.0)
    return max(x, np.float32(0.0)) + np.float32(2.0) * z * series


@kernel
def _load(values: NDArray[np.float32], first: int, count: int) -> Any:
    return load8(values, first) if count == 8 else load_part(values, first, count)


@kernel
def _store(values: NDArray[np.float32], first: int, count: int, vector: Any) -> None:
    if count == 8:
        store8(values, first, vector)
    else:
        store_part(values, first, count, vector)

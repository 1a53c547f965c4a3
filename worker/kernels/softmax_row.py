"""The softmax of a row of attention as its scores come by, a span at a time.

What is known of a row lies in memory: its *state*, the largest score so far and the total of the
weights, two float32 side by side, and its *sums*, the weighted sum of the values. All weights are
relative to the largest score; when a larger one comes, total and sums shrink (Milakov and
Gimelshein, 2018). Sixteen lanes whatever the machine: which lanes are added to which is part of
the numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .isa_ir import (
    FLOAT,
    INT1,
    INT32,
    INT64,
    Value,
    at,
    constant,
    fma,
    load,
    pointer,
    splat,
    store,
    times,
    vector,
)
from .native import real_word
from .vector import EXP_COEFFICIENTS, LN2_HIGH, LN2_LOW, LOG2_E

NO_STATE = real_word(float("-inf"))
"""The int64 word of a row's state before its first score: no largest score, total 0."""

COLUMNS = 8
"""The columns of a row of sums are a multiple of this."""

_LANES = 16
_VECTORS = 4
_FLOATS = vector(FLOAT, _LANES)
_INTEGERS = vector(INT32, _LANES)
_SUMS = vector(FLOAT, COLUMNS)

# e^x below this is less than 2^-125: it counts as 0 beside the largest weight, which is 1.
_SMALLEST = -87.0
# Added to a number below 2^22 it leaves the nearest integer in the lowest bits.
_ROUNDER = 1.5 * 2.0**23


@intrinsic
def update_row(
    typingctx: Any, scores: Any, low: Any, high: Any, scale: Any, state: Any, sums: Any,
    columns: Any,
) -> Any:  # fmt: skip
    """Take the 64 float32 scores at an address, times `scale`, into a row's state.

    Slots low <= slot < high are seen; the scores make room for their weights, those of the other
    slots are 0 whatever stands there. Sums shrink to fit, and become 0 before the first score. A
    score seen that is NaN or infinite makes the total NaN.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit_update(builder, *arguments)
        return context.get_dummy_value()

    integers, real = [types.int64] * 3, types.float32
    return types.none(*integers, real, *integers), codegen


@intrinsic
def merge_row(
    typingctx: Any, state: Any, sums: Any, other_state: Any, other_sums: Any, columns: Any
) -> Any:
    """Take the state and the sums of another part of the row into these."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit_merge(builder, *arguments)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 5), codegen


@intrinsic
def finish_row(typingctx: Any, state: Any, sums: Any, out: Any, count: Any) -> Any:
    """Write the first `count` sums, divided by the total, to an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _emit_finish(builder, *arguments)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4), codegen


def _emit_update(
    builder: ir.IRBuilder, scores: Value, low: Value, high: Value, scale: Value, state: Value,
    sums: Value, columns: Value,
) -> None:  # fmt: skip
    old, total, is_first = _state(builder, state)
    greatest, added = _emit_weights(builder, scores, low, high, scale, old)
    is_larger = builder.fcmp_unordered("!=", greatest, old)
    with builder.if_else(builder.or_(is_larger, is_first)) as (shrinks, stays):
        with shrinks:
            shrink = _shrink(builder, old, greatest, is_first)
            shrunk = builder.fadd(builder.fmul(total, shrink), added)
            _keep(builder, state, greatest, shrunk)
            _emit_scaled(builder, sums, columns, shrink, is_first)
        with stays:  # as if shrunk by 1
            _keep(builder, state, greatest, builder.fadd(total, added))


def _emit_scaled(
    builder: ir.IRBuilder, sums: Value, columns: Value, shrink: Value, is_first: Value
) -> None:
    """Shrink a row of sums; begin it with 0 at the first score."""
    factor, first = splat(builder, shrink, COLUMNS), splat(builder, is_first, COLUMNS)
    with _vectors(builder, columns) as place:
        here = at(builder, pointer(builder, sums), place)
        scaled = builder.fmul(load(builder, here, _SUMS, 4), factor)
        store(builder, builder.select(first, constant(_SUMS, 0.0), scaled), here, 4)


def _emit_merge(
    builder: ir.IRBuilder, state: Value, sums: Value, other_state: Value, other_sums: Value,
    columns: Value,
) -> None:  # fmt: skip
    old, total, is_first = _state(builder, state)
    other, other_total, is_empty = _state(builder, other_state)
    with builder.if_then(builder.not_(is_empty)):
        greatest = _larger(builder, old, other)
        shrink = _shrink(builder, old, greatest, is_first)
        share = _shrink(builder, other, greatest, is_empty)
        part = builder.fmul(other_total, share)
        both = builder.fadd(builder.fmul(total, shrink), part)
        _keep(builder, state, greatest, builder.select(is_first, part, both))
        a, b = splat(builder, shrink, COLUMNS), splat(builder, share, COLUMNS)
        first = splat(builder, is_first, COLUMNS)
        with _vectors(builder, columns) as place:
            here, there = (at(builder, pointer(builder, x), place) for x in (sums, other_sums))
            added = load(builder, there, _SUMS, 4)
            mixed = fma(builder, added, b, builder.fmul(load(builder, here, _SUMS, 4), a))
            only = builder.fmul(added, b)
            store(builder, builder.select(first, only, mixed), here, 4)


def _emit_finish(
    builder: ir.IRBuilder, state: Value, sums: Value, out: Value, count: Value
) -> None:
    _, total, _ = _state(builder, state)
    share = builder.fdiv(_float(1.0), total)
    done: Value = ir.Constant(INT64, 0)
    for width in (COLUMNS, 1):
        kind = vector(FLOAT, width)
        turns = builder.udiv(builder.sub(count, done), ir.Constant(INT64, width))
        with cgutils.for_range(builder, turns, intp=INT64) as turn:
            place = times(builder, builder.add(done, times(builder, turn.index, width)), 4)
            values = load(builder, at(builder, pointer(builder, sums), place), kind, 4)
            result = builder.fmul(values, splat(builder, share, width))
            store(builder, result, at(builder, pointer(builder, out), place), 4)
        done = builder.add(done, times(builder, turns, width))


@contextmanager
def _vectors(builder: ir.IRBuilder, columns: Value) -> Iterator[Value]:
    """Loop over the offsets of whole vectors of a row of sums."""
    turns = builder.udiv(columns, ir.Constant(INT64, COLUMNS))
    with cgutils.for_range(builder, turns, intp=INT64) as turn:
        yield times(builder, turn.index, 4 * COLUMNS)


def _float(value: float) -> ir.Constant:
    return ir.Constant(FLOAT, value)


def _state(builder: ir.IRBuilder, state: Value) -> tuple[Value, Value, Value]:
    """Largest score, total, and whether there was no score yet."""
    base = pointer(builder, state)
    largest, total = load(builder, base, FLOAT, 4), load(builder, at(builder, base, 4), FLOAT, 4)
    is_empty = builder.and_(
        builder.fcmp_ordered("==", largest, _float(float("-inf"))),
        builder.fcmp_ordered("==", total, _float(0.0)),
    )
    return largest, total, is_empty


def _keep(builder: ir.IRBuilder, state: Value, largest: Value, total: Value) -> None:
    base = pointer(builder, state)
    store(builder, largest, base, 4)
    store(builder, total, at(builder, base, 4), 4)


def _shrink(builder: ir.IRBuilder, old: Value, greatest: Value, is_empty: Value) -> Value:
    """e^(old - greatest); 0 where there was no score."""
    power = _exp_below_0(builder, splat(builder, builder.fsub(old, greatest), _LANES))
    first = builder.extract_element(power, ir.Constant(INT32, 0))
    return builder.select(is_empty, _float(0.0), first)


def _emit_weights(
    builder: ir.IRBuilder, scores: Value, low: Value, high: Value, scale: Value, largest: Value
) -> list[Value]:
    """Make weights of the scores; the largest score up to now and the sum of the weights."""
    slots = _LANES * _VECTORS
    is_whole = builder.and_(
        builder.icmp_signed("==", low, ir.Constant(INT64, 0)),
        builder.icmp_signed("==", high, ir.Constant(INT64, slots)),
    )
    with builder.if_else(is_whole) as (whole, part):
        with whole:  # the same without masks
            all_seen = [constant(vector(INT1, _LANES), 1)] * _VECTORS
            results = _emit_seen_weights(builder, scores, all_seen, scale, largest)
            whole_block = builder.block
        with part:
            seen = [_seen(builder, i, low, high) for i in range(_VECTORS)]
            masked = _emit_seen_weights(builder, scores, seen, scale, largest)
            part_block = builder.block
    chosen = []
    for from_whole, from_part in zip(results, masked, strict=True):
        phi = builder.phi(FLOAT)
        phi.add_incoming(from_whole, whole_block)
        phi.add_incoming(from_part, part_block)
        chosen.append(phi)
    return chosen


def _emit_seen_weights(
    builder: ir.IRBuilder, scores: Value, seen: list[Value], scale: Value, largest: Value
) -> list[Value]:
    base, factor = pointer(builder, scores), splat(builder, scale, _LANES)
    places = [at(builder, base, 4 * _LANES * i) for i in range(_VECTORS)]
    scaled = [builder.fmul(load(builder, place, _FLOATS, 4), factor) for place in places]
    nothing = constant(_FLOATS, float("-inf"))
    masked = [builder.select(s, x, nothing) for s, x in zip(seen, scaled, strict=True)]
    greatest = _fold(builder, [*masked, splat(builder, largest, _LANES)], _larger)
    shift = splat(builder, greatest, _LANES)
    weights = [_exp_below_0(builder, builder.fsub(x, shift)) for x in scaled]
    zero = constant(_FLOATS, 0.0)
    weights = [builder.select(s, w, zero) for s, w in zip(seen, weights, strict=True)]
    for place, weight in zip(places, weights, strict=True):
        store(builder, weight, place, 4)
    return [greatest, _fold(builder, weights, _sum)]


def _seen(builder: ir.IRBuilder, index: int, low: Value, high: Value) -> Value:
    """Mask of the slots of vector `index` that the row sees."""
    slots = ir.Constant(_INTEGERS, list(range(index * _LANES, (index + 1) * _LANES)))
    first, end = (splat(builder, builder.trunc(x, INT32), _LANES) for x in (low, high))
    return builder.and_(
        builder.icmp_signed(">=", slots, first), builder.icmp_signed("<", slots, end)
    )


def _larger(builder: ir.IRBuilder, a: Value, b: Value) -> Value:
    """Larger one in each lane; a where b is NaN."""
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


def _sum(builder: ir.IRBuilder, a: Value, b: Value) -> Value:
    return builder.fadd(a, b)


def _fold(
    builder: ir.IRBuilder,
    vectors: list[Value],
    combine: Callable[[ir.IRBuilder, Value, Value], Value],
) -> Value:
    """One number of all lanes of all vectors: vectors in order, then lanes by halves."""
    total = vectors[0]
    for other in vectors[1:]:
        total = combine(builder, total, other)
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    for half in (8, 4, 2, 1):
        moved = list(range(half, 2 * half)) + [0] * (_LANES - half)
        upper = builder.shuffle_vector(total, undefined, ir.Constant(_INTEGERS, moved))
        total = combine(builder, total, upper)
    return builder.extract_element(total, ir.Constant(INT32, 0))


def _exp_below_0(builder: ir.IRBuilder, x: Value) -> Value:
    """e^x of finite x up to 0, 0 below _SMALLEST; NaN of infinities and NaN."""
    too_small = builder.fcmp_ordered("<", x, constant(_FLOATS, _SMALLEST))
    bounded = builder.select(too_small, constant(_FLOATS, _SMALLEST), x)
    rounder = constant(_FLOATS, _ROUNDER)
    shifted = fma(builder, bounded, constant(_FLOATS, LOG2_E), rounder)
    whole = builder.fsub(shifted, rounder)
    r = fma(builder, whole, constant(_FLOATS, -LN2_HIGH), bounded)
    r = fma(builder, whole, constant(_FLOATS, -LN2_LOW), r)
    p = constant(_FLOATS, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = fma(builder, p, r, constant(_FLOATS, coefficient))
    p = fma(builder, p, builder.fmul(r, r), builder.fadd(r, constant(_FLOATS, 1.0)))
    exponent = builder.shl(builder.bitcast(shifted, _INTEGERS), constant(_INTEGERS, 23))
    power = builder.bitcast(builder.add(exponent, constant(_INTEGERS, 127 << 23)), _FLOATS)
    # x * 0 is 0, and NaN for minus infinity: a product that overflowed must not go unnoticed.
    nothing = builder.fmul(x, constant(_FLOATS, 0.0))
    return builder.select(too_small, nothing, builder.fmul(p, power))

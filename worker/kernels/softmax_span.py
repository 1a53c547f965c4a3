"""One row's softmax over a span of attention: 64 scores to weights, in registers.

Sixteen lanes whatever the machine: which lanes are added to which is part of the numbers.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .isa_ir import (
    FLOAT,
    INT32,
    Value,
    at,
    constant,
    fma,
    load,
    pointer,
    splat,
    store,
    vector,
)
from .vector import EXP_COEFFICIENTS, LN2_HIGH, LN2_LOW, LOG2_E

_LANES = 16
_VECTORS = 4
_FLOATS = vector(FLOAT, _LANES)
_INTEGERS = vector(INT32, _LANES)

# e^x below this is less than 2^-125: it counts as 0 beside the span's largest weight, which is 1.
_SMALLEST = -87.0
# Added to a number below 2^22 it leaves the nearest integer in the lowest bits.
_ROUNDER = 1.5 * 2.0**23


@intrinsic
def softmax_span(typingctx: Any, scores: Any, low: Any, high: Any, scale: Any, largest: Any) -> Any:
    """Turn the 64 float32 scores at an address into weights e^(scale * score - greatest).

    Slots low <= slot < high are seen, the others get weight 0 whatever stands there. Gives the
    larger one of `largest` and the scaled scores seen, which is `greatest`, and the sum of the
    weights. A score seen that is NaN or infinite makes the sum NaN.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        results = _emit(builder, *arguments)
        return context.make_tuple(builder, signature.return_type, results)

    result = types.UniTuple(types.float32, 2)
    return result(types.int64, types.int64, types.int64, types.float32, types.float32), codegen


def _emit(
    builder: ir.IRBuilder, scores: Value, low: Value, high: Value, scale: Value, largest: Value
) -> list[Value]:
    base, factor = pointer(builder, scores), splat(builder, scale, _LANES)
    places = [at(builder, base, 4 * _LANES * i) for i in range(_VECTORS)]
    scaled = [builder.fmul(load(builder, place, _FLOATS, 4), factor) for place in places]
    seen = [_seen(builder, i, low, high) for i in range(_VECTORS)]
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

"""Vectors of float64 lanes for the sampler: weights of eight tokens at a time, and their sums.

As in `vector`, the order of operations is fixed, so that every machine draws the same token. The
exponential is made of sums, products and bit operations alone, none of them fused: that of a
mathematics library differs from machine to machine. A lane and a single number go through the
same code, so a token's weight is the same however it is computed.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 8
LOWEST = -700.0  # tokens whose scaled logit lies further below the largest have no weight

_DOUBLE = ir.DoubleType()
_INT64 = ir.IntType(64)
_INT32 = ir.IntType(32)
_OCTET = ir.VectorType(_DOUBLE, LANES)
_QUARTET = ir.VectorType(_DOUBLE, LANES // 2)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)

_LOG2_E = 1.4426950408889634
# ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Adding it rounds to an integer and leaves that integer in the lowest bits.
_ROUND = 6755399441055744.0
_FACTORIALS = (
    6227020800.0,
    479001600.0,
    39916800.0,
    3628800.0,
    362880.0,
    40320.0,
    5040.0,
    720.0,
    120.0,
    24.0,
    6.0,
    2.0,
    1.0,
    1.0,
)


class Float64x8(types.Type):  # type: ignore[misc]
    """Numba's view of eight float64 lanes; lives inside kernels only."""

    def __init__(self) -> None:
        super().__init__(name="Float64x8")


class Float64x4(types.Type):  # type: ignore[misc]
    """Numba's view of four float64 lanes; lives inside kernels only."""

    def __init__(self) -> None:
        super().__init__(name="Float64x4")


float64x8 = Float64x8()
float64x4 = Float64x4()


@register_model(Float64x8)
class _Float64x8Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _OCTET)


@register_model(Float64x4)
class _Float64x4Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _QUARTET)


def _constant(like: ir.Type, value: float) -> ir.Constant:
    """A number in the shape of `like`: one double, or all lanes of a vector."""
    if isinstance(like, ir.VectorType):
        return ir.Constant(like, [value] * like.count)
    return ir.Constant(like, value)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> Any:
    """Eight lanes of one double."""
    undefined = ir.Constant(_OCTET, ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    first = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
    return builder.shuffle_vector(single, undefined, first)


def _exp(builder: ir.IRBuilder, x: ir.Value) -> Any:
    """IR of e**x for LOWEST <= x <= 0: 2**k times a Taylor series, to about one ulp."""
    shape = x.type
    integers = ir.VectorType(_INT64, shape.count) if isinstance(shape, ir.VectorType) else _INT64
    shifted = builder.fadd(builder.fmul(x, _constant(shape, _LOG2_E)), _constant(shape, _ROUND))
    k = builder.fsub(shifted, _constant(shape, _ROUND))
    r = builder.fsub(x, builder.fmul(k, _constant(shape, _LN2_HIGH)))
    r = builder.fsub(r, builder.fmul(k, _constant(shape, _LN2_LOW)))
    p = _constant(shape, 1.0 / _FACTORIALS[0])
    for factorial in _FACTORIALS[1:]:
        p = builder.fadd(builder.fmul(p, r), _constant(shape, 1.0 / factorial))
    exponent = builder.shl(builder.bitcast(shifted, integers), _constant(integers, 52))
    return builder.bitcast(builder.add(builder.bitcast(p, integers), exponent), shape)


def _weight(builder: ir.IRBuilder, logit: Any, top: Any, temperature: Any, min_p: Any) -> Any:
    """IR of a token's weight, of all lanes of a vector or of one double."""
    x = builder.fdiv(builder.fsub(logit, top), temperature)
    lowest = _constant(x.type, LOWEST)
    above = builder.fcmp_ordered(">", x, lowest)
    y = _exp(builder, builder.select(above, x, lowest))
    kept = builder.and_(above, builder.fcmp_ordered(">=", y, min_p))
    return builder.select(kept, y, _constant(x.type, 0.0))


@intrinsic
def weight(typingctx: Any, logit: Any, top: Any, temperature: Any, min_p: Any) -> Any:
    """Unnormalised probability of one token, a float64: exp((logit - top) / temperature).

    `logit` is a float32, `top` the row's largest logit as a float64; what is below `min_p`, or
    LOWEST below the top, is 0.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        logit_value, *others = arguments
        return _weight(builder, builder.fpext(logit_value, _DOUBLE), *others)

    return types.float64(types.float32, types.float64, types.float64, types.float64), codegen


@intrinsic
def weights8(typingctx: Any, row: Any, offset: Any, top: Any, temperature: Any, min_p: Any) -> Any:
    """Weights of eight tokens of a float32 row from `offset`, see `weight`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset_value, *others = arguments
        data = context.make_array(row)(context, builder, array).data
        pointer = builder.bitcast(builder.gep(data, [offset_value]), _FLOATS.as_pointer())
        logits = builder.fpext(builder.load(pointer, align=4), _OCTET)
        return _weight(builder, logits, *(_spread(builder, value) for value in others))

    signature = float64x8(row, types.intp, types.float64, types.float64, types.float64)
    return signature, codegen


@intrinsic
def no_sums(typingctx: Any) -> Any:
    """Four sums of nothing."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _constant(_QUARTET, 0.0)

    return float64x4(), codegen


@intrinsic
def add_halves(typingctx: Any, sums: Any, values: Any) -> Any:
    """Add lanes 0 to 3, then lanes 4 to 7 to four sums that stand side by side."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, octet = arguments
        undefined = ir.Constant(_OCTET, ir.Undefined)
        for lanes in ([0, 1, 2, 3], [4, 5, 6, 7]):
            mask = ir.Constant(ir.VectorType(_INT32, LANES // 2), lanes)
            total = builder.fadd(total, builder.shuffle_vector(octet, undefined, mask))
        return total

    return float64x4(float64x4, float64x8), codegen


@intrinsic
def four_lanes(typingctx: Any, sums: Any) -> Any:
    """The four sums as a tuple."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = [builder.extract_element(arguments[0], ir.Constant(_INT32, i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return types.UniTuple(types.float64, 4)(float64x4), codegen

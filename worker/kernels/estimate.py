"""A quick estimate of the sum of a row's weights, and how far it may be off.

The exact sum costs an exponential in float64 a token. Most draws need few of its digits: they fall
well inside the weight of one token. Where an estimate has too few, the exact sum is taken, so that
it never changes a token. Float32, sixteen tokens at a time, with the same bits on every machine.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numpy.typing import NDArray

from .jit import kernel
from .scratch import BLOCK, Scratch
from .weights import Weighing, weight_of

LANES = 16
# Shares of the sum that an estimate is off by at most. An exponent y of 2 is off by 3 roundings of
# itself, 1.3e-7 |y|; n tokens of weight 2^y count only where |y| is not much above log2(n), at most
# 31: 4e-6. The polynomial adds 2e-7, a lane's sum of a block 32 roundings, 2e-6.
DOUBT = 1e-5
_COLDEST, _HOTTEST = 1e-3, 1e3  # temperatures whose factors are in the range of float32

_LOG2_E = 1.4426950408889634
_LOWEST = -126.0  # 2**-126 is the smallest normal number
_ROUND = 12582912.0  # adding it rounds to an integer and leaves that in the lowest bits
# 2**r for -0.5 <= r <= 0.5, fitted to the least relative error (7.5e-8).
_POWER = (
    1.3276459897890082e-3,
    9.675541243487521e-3,
    5.550713308745511e-2,
    2.4022119726104668e-1,
    6.931469670431798e-1,
    1.0000000716539867,
)

_FLOAT = ir.FloatType()
_INT32 = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(_INT32, LANES)


class Float32x16(types.Type):  # type: ignore[misc]
    """Numba's view of sixteen float32 lanes; lives inside kernels only."""

    def __init__(self) -> None:
        super().__init__(name="Float32x16")


float32x16 = Float32x16()


@register_model(Float32x16)
class _Float32x16Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _VECTOR)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _spread(builder: ir.IRBuilder, value: ir.Value) -> Any:
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(single, undefined, ir.Constant(_INTEGERS, [0] * LANES))


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[Any]) -> Any:
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, arguments)


def _power(builder: ir.IRBuilder, y: ir.Value) -> Any:
    """IR of 2**y for y <= 0; what is below _LOWEST is taken as that."""
    y = builder.select(builder.fcmp_ordered(">", y, _constant(_LOWEST)), y, _constant(_LOWEST))
    shifted = builder.fadd(y, _constant(_ROUND))
    r = builder.fsub(y, builder.fsub(shifted, _constant(_ROUND)))
    p = _constant(_POWER[0])
    for coefficient in _POWER[1:]:
        p = _call(builder, "llvm.fma.v16f32", _VECTOR, [p, r, _constant(coefficient)])
    bits = builder.shl(builder.bitcast(shifted, _INTEGERS), ir.Constant(_INTEGERS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(p, _INTEGERS), bits), _VECTOR)


@intrinsic
def _no_sums(typingctx: Any) -> Any:
    """Sixteen sums of nothing."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _constant(0.0)

    return float32x16(), codegen


@intrinsic
def _add_powers(typingctx: Any, sums: Any, row: Any, offset: Any, top: Any, factor: Any) -> Any:
    """Add 2**((logit - top) * factor) of sixteen logits of a row from `offset`, lane by lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums_value, array, offset_value, top_value, factor_value = arguments
        data = context.make_array(row)(context, builder, array).data
        pointer = builder.bitcast(builder.gep(data, [offset_value]), _VECTOR.as_pointer())
        depth = builder.fsub(builder.load(pointer, align=4), _spread(builder, top_value))
        power = _power(builder, builder.fmul(depth, _spread(builder, factor_value)))
        return builder.fadd(sums_value, power)

    return float32x16(float32x16, row, types.intp, types.float32, types.float32), codegen


@intrinsic
def _sum_lanes(typingctx: Any, sums: Any) -> Any:
    """Sum of the sixteen lanes, a float64: always by the same tree."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.VectorType(ir.DoubleType(), LANES)
        vector = builder.fpext(arguments[0], wide)
        undefined = ir.Constant(wide, ir.Undefined)
        for half in (8, 4, 2, 1):
            upper = list(range(half, 2 * half)) + [0] * (LANES - half)
            mask = ir.Constant(_INTEGERS, upper)
            vector = builder.fadd(vector, builder.shuffle_vector(vector, undefined, mask))
        return builder.extract_element(vector, ir.Constant(_INT32, 0))

    return types.float64(float32x16), codegen


@kernel
def can_estimate(how: Weighing) -> bool:
    """Whether weights are of a kind that can be estimated."""
    return how.min_p == 0 and _COLDEST <= how.temperature <= _HOTTEST


@kernel
def estimate_weights(row: NDArray[np.float32], how: Weighing, scratch: Scratch) -> float:
    """The sum of all weights, off by less than DOUBT times itself.

    Args:
        row: float32 [n], no NaN.
        how: weights that `can_estimate`.
        scratch: its prefixes receive the sum up to the end of each block, off by less than DOUBT
            times the whole sum.
    """
    top, factor = np.float32(how.top), np.float32(_LOG2_E / how.temperature)
    total = 0.0
    for first in range(0, row.size, BLOCK):
        last = min(first + BLOCK, row.size)
        whole = first + (last - first) // LANES * LANES
        sums = _no_sums()
        for i in range(first, whole, LANES):
            sums = _add_powers(sums, row, i, top, factor)
        total += _sum_lanes(sums)
        for i in range(whole, last):
            total += weight_of(row[i], how)
        scratch.prefixes[first // BLOCK] = total
    return total

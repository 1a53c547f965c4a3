"""Quantisation of activations for the integer kernels: 32 values to a record of 48 bytes.

A record is ``[d][s][h0][h1][32 x int8 q]``, the first four float32: value i is about d * q[i], with
d = largest magnitude / 127 and q rounded to the nearest integer, ties to even; h0 and h1 are the
sums of the first and the last 16 q, which are exact, and s = d * (h0 + h1). Values that are all
below 2^-90 become zeros: a product of d and the smallest scale of a weight would be subnormal, and
some CPUs take thirty times as long for such numbers.

A NaN or an infinity among the values makes d NaN or infinite, and so everything computed from it.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from .jit import kernel
from .native import address_of

QUANT_BLOCK = 32
RECORD_BYTES = 48
_LARGEST = 127.0
_TINY = 2.0**-90
_HALF = QUANT_BLOCK // 2

_FLOAT = ir.FloatType()
_INT32 = ir.IntType(32)
_BYTE = ir.IntType(8)
_FLOATS = ir.VectorType(_FLOAT, QUANT_BLOCK)
_INTEGERS = ir.VectorType(_INT32, QUANT_BLOCK)
_BYTES = ir.VectorType(_BYTE, QUANT_BLOCK)
_HALF_INTEGERS = ir.VectorType(_INT32, _HALF)


def record_bytes(width: int) -> int:
    """Bytes of a quantised row of `width` values, which must be whole blocks."""
    assert width % QUANT_BLOCK == 0, width
    return width // QUANT_BLOCK * RECORD_BYTES


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> Any:
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, arguments)


def _splat(builder: ir.IRBuilder, value: ir.Value) -> Any:
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    return builder.shuffle_vector(single, undefined, ir.Constant(_INTEGERS, [0] * QUANT_BLOCK))


def _largest_magnitude(builder: ir.IRBuilder, values: ir.Value) -> Any:
    """Largest |value|; as unsigned integers, NaN is above infinity and infinity above the rest."""
    bits = builder.bitcast(values, _INTEGERS)
    magnitudes = builder.and_(bits, ir.Constant(_INTEGERS, [0x7FFFFFFF] * QUANT_BLOCK))
    largest = _call(builder, "llvm.vector.reduce.umax.v32i32", _INT32, [magnitudes])
    return builder.bitcast(largest, _FLOAT)


def _zero_if_tiny(builder: ir.IRBuilder, largest: ir.Value, value: ir.Value) -> Any:
    """Give the value, or 0 where the block holds next to nothing; NaN is not tiny."""
    is_tiny = builder.fcmp_ordered("<", largest, ir.Constant(_FLOAT, _TINY))
    return builder.select(is_tiny, ir.Constant(_FLOAT, 0.0), value)


def _rounded(builder: ir.IRBuilder, values: ir.Value, largest: ir.Value) -> Any:
    """Integers of values * 127 / largest: int32 [32], 0 where there is no such number."""
    inverse = builder.fdiv(ir.Constant(_FLOAT, _LARGEST), largest)
    inverse = _zero_if_tiny(builder, largest, inverse)
    scaled = builder.fmul(values, _splat(builder, inverse))
    rounded = _call(builder, "llvm.roundeven.v32f32", _FLOATS, [scaled])
    magnitude = _call(builder, "llvm.fabs.v32f32", _FLOATS, [rounded])
    bound = ir.Constant(_FLOATS, [_LARGEST] * QUANT_BLOCK)
    usable = builder.fcmp_ordered("<=", magnitude, bound)
    zeros = ir.Constant(_FLOATS, [0.0] * QUANT_BLOCK)
    return builder.fptosi(builder.select(usable, rounded, zeros), _INTEGERS)


def _sum_of_half(builder: ir.IRBuilder, integers: ir.Value, half: int) -> Any:
    lanes = ir.Constant(_HALF_INTEGERS, list(range(half * _HALF, (half + 1) * _HALF)))
    part = builder.shuffle_vector(integers, ir.Constant(_INTEGERS, ir.Undefined), lanes)
    total = _call(builder, "llvm.vector.reduce.add.v16i32", _INT32, [part])
    return builder.sitofp(total, _FLOAT)


@intrinsic
def quantize_block(typingctx: Any, values: Any, record: Any) -> Any:
    """Quantise the 32 float32 values at an address into the record at another address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = builder.inttoptr(arguments[0], _FLOATS.as_pointer())
        vector = builder.load(source, align=4)
        largest = _largest_magnitude(builder, vector)
        scale = builder.fdiv(largest, ir.Constant(_FLOAT, _LARGEST))
        scale = _zero_if_tiny(builder, largest, scale)
        integers = _rounded(builder, vector, largest)
        first, last = (_sum_of_half(builder, integers, half) for half in (0, 1))
        weighted = builder.fmul(scale, builder.fadd(first, last))
        floats = builder.inttoptr(arguments[1], _FLOAT.as_pointer())
        for index, value in enumerate((scale, weighted, first, last)):
            place = builder.gep(floats, [ir.Constant(_INT32, index)])
            builder.store(value, place, align=4)
        codes = builder.gep(floats, [ir.Constant(_INT32, 4)])
        codes = builder.bitcast(codes, _BYTES.as_pointer())
        builder.store(builder.trunc(integers, _BYTES), codes, align=4)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


@kernel
def quantize_row(values: int, record: int, width: int) -> None:
    """Quantise the `width` float32 values at an address into the records at another."""
    for block in range(width // QUANT_BLOCK):
        quantize_block(values + 4 * QUANT_BLOCK * block, record + RECORD_BYTES * block)


def quantized(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Records of rows, for tests and measurements.

    Args:
        x: [rows, width] float32, C-contiguous, width a multiple of 32.

    Returns:
        uint8 [rows, width / 32 * 48].
    """
    records = np.empty((len(x), record_bytes(x.shape[1])), np.uint8)
    for row, record in zip(x, records, strict=True):
        quantize_row(address_of(row), address_of(record), len(row))
    return records

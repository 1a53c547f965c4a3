"""float16 to float32 without an instruction for it: not every CPU and libc has one or a routine."""

from llvmlite import ir

from .isa_ir import FLOAT, INT32, Value, constant, to_float, vector

_SIGN = 0x8000
_INFINITY = 0x7C00
_SMALLEST_NORMAL = 0x0400


def widened_bits(builder: ir.IRBuilder, halves: Value) -> Value:
    """float32 lanes of float16 lanes, which are given as int16; the bits of an instruction."""
    integers = vector(INT32, halves.type.count)
    floats = vector(FLOAT, halves.type.count)
    bits = builder.zext(halves, integers)
    sign = builder.shl(builder.and_(bits, constant(integers, _SIGN)), constant(integers, 16))
    magnitude = builder.and_(bits, constant(integers, _SIGN - 1))
    # float32 has an exponent bias larger by 112; infinity and NaN need as much again.
    is_finite = builder.icmp_unsigned("<", magnitude, constant(integers, _INFINITY))
    bias = builder.select(is_finite, constant(integers, 112 << 23), constant(integers, 224 << 23))
    normal = builder.add(builder.shl(magnitude, constant(integers, 13)), bias)
    # An instruction makes a signalling NaN a quiet one.
    is_nan = builder.icmp_unsigned(">", magnitude, constant(integers, _INFINITY))
    quiet = builder.select(is_nan, constant(integers, 1 << 22), constant(integers, 0))
    # Zeros and subnormals are multiples of 2^-24, all of them normal in float32.
    small = builder.fmul(to_float(builder, magnitude), constant(floats, 2.0**-24))
    is_small = builder.icmp_unsigned("<", magnitude, constant(integers, _SMALLEST_NORMAL))
    chosen = builder.select(is_small, builder.bitcast(small, integers), builder.or_(normal, quiet))
    return builder.bitcast(builder.or_(sign, chosen), floats)

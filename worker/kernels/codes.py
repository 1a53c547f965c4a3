"""Vectors of sixteen stored codes for the dequantisation kernels, built as LLVM IR.

LLVM turns plain loops over packed codes into scalar code, because it cannot prove that the array
read and the array written do not overlap. With these operations sixteen codes go from bytes to
float32 values in registers, in vectors as wide as the CPU's. Every product and every sum is
rounded by itself, never fused. Offsets are not checked: the kernels' wrapper does that.

What is written to an array of one dimension stays in the caches; what is written to an array
[n, 16] is streamed past them, see `_store`.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16

_BYTES = ir.VectorType(ir.IntType(8), LANES)
_WORDS = ir.VectorType(ir.IntType(16), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, LANES)

# The values that the 4-bit codes of IQ4_NL and IQ4_XS stand for (ggml-common.h).
_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
# Twice the values of a 4-bit float with two bits of exponent (OCP Microscaling Formats, E2M1).
_FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


class Codes16(types.Type):
    """Numba's view of an LLVM vector of sixteen bytes; lives inside kernels only."""

    def __init__(self) -> None:
        super().__init__(name="Codes16")


codes16 = Codes16()


@register_model(Codes16)
class _Codes16Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _BYTES)


def _constant(vector: ir.VectorType, values: list[int]) -> ir.Constant:
    return ir.Constant(vector, values * (LANES // len(values)))


def _splat(builder: ir.IRBuilder, value: ir.Value) -> Any:
    vector = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(single, undefined, _constant(_INTEGERS, [0]))


def _pointer(
    context: Any, builder: ir.IRBuilder, array_type: Any, array: Any, offset: Any, vector: Any
) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


def _store(
    context: Any, builder: ir.IRBuilder, out_type: Any, out: Any, to: Any, values: Any
) -> Any:
    """Write values from number `to` of all those of `out` on.

    An ordinary store first has the line that it writes to read from memory. A non-temporal one
    does not, and the line is in no cache afterwards. It wants an address that is a multiple of 16.
    """
    is_streamed = out_type.ndim == 2
    place = _pointer(context, builder, out_type, out, to, _FLOATS)
    store = builder.store(values, place, align=16 if is_streamed else 4)
    if is_streamed:
        one = ir.Constant(ir.IntType(32), 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))
    return context.get_dummy_value()


@intrinsic
def load_codes(typingctx: Any, raw: Any, at: Any) -> Any:
    """Sixteen bytes of ``raw`` (uint8) from ``at``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, start = arguments
        return builder.load(_pointer(context, builder, raw, source, start, _BYTES), align=1)

    return codes16(raw, types.intp), codegen


@intrinsic
def store_codes(typingctx: Any, out: Any, to: Any, codes: Any) -> Any:
    """Write sixteen codes to ``out`` (uint8) from ``to``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, lanes = arguments
        builder.store(lanes, _pointer(context, builder, out, array, offset, _BYTES), align=1)
        return context.get_dummy_value()

    return types.none(out, types.intp, codes16), codegen


@intrinsic
def field(typingctx: Any, codes: Any, shift: Any, mask: Any) -> Any:
    """``(codes >> shift) & mask`` in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shifted = builder.lshr(arguments[0], _splat(builder, arguments[1]))
        return builder.and_(shifted, _splat(builder, arguments[2]))

    return codes16(codes16, types.uint8, types.uint8), codegen


@intrinsic
def joined(typingctx: Any, low: Any, high: Any, shift: Any) -> Any:
    """``low | high << shift`` in each lane."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shifted = builder.shl(arguments[1], _splat(builder, arguments[2]))
        return builder.or_(arguments[0], shifted)

    return codes16(codes16, codes16, types.uint8), codegen


@intrinsic
def spread_bits(typingctx: Any, bits: Any) -> Any:
    """Bit i of a uint16 in lane i, as 0 or 1."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        powers = ir.Constant(_WORDS, [1 << lane for lane in range(LANES)])
        chosen = builder.and_(_splat(builder, arguments[0]), powers)
        return builder.zext(builder.icmp_unsigned("!=", chosen, _constant(_WORDS, [0])), _BYTES)

    return codes16(types.uint16), codegen


def _looked_up(builder: ir.IRBuilder, codes: ir.Value, table: tuple[int, ...]) -> Any:
    """The byte of the table that each 4-bit code stands for."""
    values: list[Any] = [_constant(_BYTES, [value]) for value in table]
    for bit in range(4):  # halve the candidates by one bit of the code at a time
        chosen = builder.and_(codes, _constant(_BYTES, [1 << bit]))
        is_set = builder.icmp_unsigned("!=", chosen, _constant(_BYTES, [0]))
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [builder.select(is_set, odd, even) for even, odd in pairs]
    return values[0]


@intrinsic
def iq4_values(typingctx: Any, codes: Any) -> Any:
    """The signed byte that each 4-bit code stands for in the IQ4 types."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _looked_up(builder, arguments[0], _IQ4_VALUES)

    return codes16(codes16), codegen


@intrinsic
def fp4_values(typingctx: Any, codes: Any) -> Any:
    """Twice the 4-bit float that each code stands for, as a signed byte."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _looked_up(builder, arguments[0], _FP4_DOUBLED)

    return codes16(codes16), codegen


@intrinsic
def codes_of(typingctx: Any, low: Any, high: Any) -> Any:
    """Codes from two int64: the bytes of ``low``, then those of ``high``, the lowest first."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words: Any = ir.Constant(ir.VectorType(ir.IntType(64), 2), ir.Undefined)
        for lane, word in enumerate(arguments):
            words = builder.insert_element(words, word, ir.Constant(ir.IntType(32), lane))
        return builder.bitcast(words, _BYTES)

    return codes16(types.int64, types.int64), codegen


@intrinsic
def negated(typingctx: Any, codes: Any, signs: Any) -> Any:
    """The codes, negated in each lane whose bit of a uint16 is set."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        powers = ir.Constant(_WORDS, [1 << lane for lane in range(LANES)])
        chosen = builder.and_(_splat(builder, arguments[1]), powers)
        is_set = builder.icmp_unsigned("!=", chosen, _constant(_WORDS, [0]))
        return builder.select(is_set, builder.neg(arguments[0]), arguments[0])

    return codes16(codes16, types.uint16), codegen


@intrinsic
def trits(typingctx: Any, codes: Any, power: Any) -> Any:
    """The ternary digit, 0 to 2, that follows the point in ``codes * power / 256``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fractions = builder.zext(builder.mul(arguments[0], _splat(builder, arguments[1])), _WORDS)
        tripled = builder.mul(fractions, _constant(_WORDS, [3]))
        return builder.trunc(builder.lshr(tripled, _constant(_WORDS, [8])), _BYTES)

    return codes16(codes16, types.uint8), codegen


@intrinsic
def write_scaled(typingctx: Any, out: Any, to: Any, codes: Any, bias: Any, d: Any) -> Any:
    """Write ``d * (codes - bias)`` to ``out`` (float32) from ``to``; codes are unsigned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, lanes, bias_value, scale = arguments
        integers = builder.sub(builder.zext(lanes, _INTEGERS), _splat(builder, bias_value))
        values = builder.fmul(builder.sitofp(integers, _FLOATS), _splat(builder, scale))
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, codes16, types.int32, types.float32), codegen


@intrinsic
def write_signed(typingctx: Any, out: Any, to: Any, codes: Any, d: Any) -> Any:
    """Write ``d * codes`` to ``out`` (float32) from ``to``; codes are signed bytes."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, lanes, scale = arguments
        integers = builder.sext(lanes, _INTEGERS)
        values = builder.fmul(builder.sitofp(integers, _FLOATS), _splat(builder, scale))
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, codes16, types.float32), codegen


@intrinsic
def write_affine(typingctx: Any, out: Any, to: Any, codes: Any, d: Any, m: Any) -> Any:
    """Write ``d * codes + m`` to ``out`` (float32) from ``to``; codes are unsigned."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, lanes, scale, minimum = arguments
        integers = builder.zext(lanes, _INTEGERS)
        products = builder.fmul(builder.sitofp(integers, _FLOATS), _splat(builder, scale))
        values = builder.fadd(products, _splat(builder, minimum))
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, codes16, types.float32, types.float32), codegen


def _halves_to_floats(builder: ir.IRBuilder, halves: ir.Value) -> Any:
    """IR of float16 to float32, exact; not every CPU and libc has an instruction or a routine."""

    def integers(value: int) -> ir.Constant:
        return _constant(_INTEGERS, [value])

    bits = builder.zext(halves, _INTEGERS)
    sign = builder.shl(builder.and_(bits, integers(0x8000)), integers(16))
    magnitude = builder.and_(bits, integers(0x7FFF))
    # float32 has an exponent bias larger by 112; infinity and NaN need as much again.
    is_finite = builder.icmp_unsigned("<", magnitude, integers(0x7C00))
    bias = builder.select(is_finite, integers(112 << 23), integers(224 << 23))
    normal = builder.add(builder.shl(magnitude, integers(13)), bias)
    # Zeros and subnormals are multiples of 2^-24, all of them normal in float32.
    unit = ir.Constant(_FLOATS, [2.0**-24] * LANES)
    small = builder.bitcast(builder.fmul(builder.sitofp(magnitude, _FLOATS), unit), _INTEGERS)
    is_small = builder.icmp_unsigned("<", magnitude, integers(0x0400))
    return builder.bitcast(builder.or_(sign, builder.select(is_small, small, normal)), _FLOATS)


@intrinsic
def write_halves(typingctx: Any, out: Any, to: Any, raw: Any, at: Any) -> Any:
    """Write the sixteen float16 values of ``raw`` (uint8) from ``at`` to ``out`` from ``to``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, source, start = arguments
        halves = builder.load(_pointer(context, builder, raw, source, start, _WORDS), align=1)
        values = _halves_to_floats(builder, halves)
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, raw, types.intp), codegen


@intrinsic
def write_floats(typingctx: Any, out: Any, to: Any, raw: Any, at: Any) -> Any:
    """Write the sixteen float32 values of ``raw`` (uint8) from ``at`` to ``out`` from ``to``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, source, start = arguments
        values = builder.load(_pointer(context, builder, raw, source, start, _FLOATS), align=1)
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, raw, types.intp), codegen


@intrinsic
def write_brain_floats(typingctx: Any, out: Any, to: Any, raw: Any, at: Any) -> Any:
    """Write the sixteen bfloat16 values of ``raw`` (uint8) from ``at`` to ``out`` from ``to``."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, source, start = arguments
        upper = builder.load(_pointer(context, builder, raw, source, start, _WORDS), align=1)
        bits = builder.shl(builder.zext(upper, _INTEGERS), _constant(_INTEGERS, [16]))
        values = builder.bitcast(bits, _FLOATS)
        return _store(context, builder, out, array, offset, values)

    return types.none(out, types.intp, raw, types.intp), codegen


@intrinsic
def write_value(typingctx: Any, out: Any, to: Any, value: Any) -> Any:
    """Write one number of ``out`` (float32), into the caches."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset, number = arguments
        builder.store(number, _pointer(context, builder, out, array, offset, _FLOAT), align=4)
        return context.get_dummy_value()

    return types.none(out, types.intp, types.float32), codegen


@intrinsic
def fence(typingctx: Any) -> Any:
    """Have all that was streamed in memory before anything that is written from now on."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), codegen

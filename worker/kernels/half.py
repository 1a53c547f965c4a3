"""float16 in LLVM IR: to float32 and back, with the same bits on every machine.

Both ways are IEEE 754 conversions: to float32 without loss, to float16 to the nearest number with
ties to even; what is too large becomes infinity, and NaN stays NaN. A CPU that has instructions for
them gets LLVM's own conversions. For any other LLVM would call a routine that is not in every
libc, so there the bits are computed.
"""

from dataclasses import dataclass

from llvmlite import ir

from .feature_probe import best_instruction_set
from .isa_half import widened_bits
from .isa_ir import FLOAT, HALF, INT16, INT32, Value, constant, load, vector
from .isa_pairs import Generic

_INFINITY = 0x7C00


def has_half_instructions() -> bool:
    """Whether the CPU that kernels are compiled for surely converts float16 itself."""
    return best_instruction_set().name != Generic.name


@dataclass(frozen=True, slots=True)
class StoredFloats:
    """How numbers lie in memory that kernels compute with as float32.

    Attributes:
        is_half: float16 instead of float32.
        has_instructions: whether the CPU converts float16 itself.
    """

    is_half: bool
    has_instructions: bool

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return 2 if self.is_half else 4

    def load(self, builder: ir.IRBuilder, base: Value, lanes: int) -> Value:
        """Some numbers in memory as a vector of float32."""
        if not self.is_half:
            return load(builder, base, vector(FLOAT, lanes), 4)
        halves = load(builder, base, vector(INT16, lanes), 2)
        return widened(builder, halves, self.has_instructions)

    def converted(self, builder: ir.IRBuilder, values: Value) -> Value:
        """A vector of float32 as it is stored: float32 or int16 lanes."""
        return narrowed(builder, values, self.has_instructions) if self.is_half else values


def stored_floats(is_half: bool) -> StoredFloats:
    """Numbers in the memory of the CPU that kernels are compiled for."""
    return StoredFloats(is_half, has_half_instructions())


def widened(builder: ir.IRBuilder, halves: Value, has_instructions: bool) -> Value:
    """float32 lanes of float16 lanes, which are given as int16."""
    if has_instructions:
        values = builder.bitcast(halves, vector(HALF, halves.type.count))
        return builder.fpext(values, vector(FLOAT, halves.type.count))
    return widened_bits(builder, halves)


def narrowed(builder: ir.IRBuilder, floats: Value, has_instructions: bool) -> Value:
    """float16 lanes, as int16, of float32 lanes."""
    words = vector(INT16, floats.type.count)
    if has_instructions:
        halves = builder.fptrunc(floats, vector(HALF, floats.type.count))
        return builder.bitcast(halves, words)
    return builder.trunc(_narrowed_bits(builder, floats), words)


def _narrowed_bits(builder: ir.IRBuilder, floats: Value) -> Value:
    """Bits of float16 in int32 lanes."""
    integers = vector(INT32, floats.type.count)
    bits = builder.bitcast(floats, integers)
    sign = builder.lshr(builder.and_(bits, constant(integers, 1 << 31)), constant(integers, 16))
    magnitude = builder.and_(bits, constant(integers, (1 << 31) - 1))
    # Normal: take 13 bits off, rounded by adding just under half a unit, one more if odd. A carry
    # out of the fraction raises the exponent, in the end to infinity, as it should.
    odd = builder.and_(builder.lshr(magnitude, constant(integers, 13)), constant(integers, 1))
    rounded = builder.add(builder.add(magnitude, constant(integers, 0x0FFF)), odd)
    normal = builder.lshr(
        builder.sub(rounded, constant(integers, 112 << 23)), constant(integers, 13)
    )
    # From 65,520 on the nearest number is infinity: 2^16 is the first that rounds up by itself.
    too_large = builder.icmp_unsigned(">=", magnitude, constant(integers, 143 << 23))
    normal = builder.select(too_large, constant(integers, _INFINITY), normal)
    # Below 2^-14: adding 0.5 leaves multiples of 2^-24 in the fraction, rounded by the addition.
    half = constant(floats.type, 0.5)
    shifted = builder.bitcast(builder.fadd(builder.bitcast(magnitude, floats.type), half), integers)
    small = builder.sub(shifted, builder.bitcast(half, integers))
    is_small = builder.icmp_unsigned("<", magnitude, constant(integers, 113 << 23))
    finite = builder.select(is_small, small, normal)
    payload = builder.and_(
        builder.lshr(magnitude, constant(integers, 13)), constant(integers, 0x03FF)
    )
    nan = builder.or_(payload, constant(integers, _INFINITY | 0x0200))
    is_nan = builder.icmp_unsigned(">", magnitude, constant(integers, 255 << 23))
    return builder.or_(sign, builder.select(is_nan, nan, finite))

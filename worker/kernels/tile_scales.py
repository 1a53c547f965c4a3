"""What happens to the integer sums of a block of 32 columns: scales, minima and the running sum.

The order of the roundings is part of the numerics that all machines share:

* one scale: ``acc = fma(sum, fl(d * dx), acc)``, then with a minimum ``acc = fma(m, s, acc)``;
* a scale for each half: ``g = sum0 * scale0 + sum1 * scale1`` is a whole number below 2^24, so
  exact in float32, then ``acc = fma(g, fl(d * dx), acc)``; with minima, in the same way
  ``e = h0 * min0 + h1 * min1`` and ``acc = fma(e, -fl(dmin * dx), acc)``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gguf.constants import GGMLQuantizationType
from llvmlite import ir

from .isa import QUADS, CodeRange, InstructionSet
from .isa_ir import (
    FLOAT,
    INT8,
    INT16,
    Value,
    at,
    constant,
    fma,
    load,
    load_splat,
    to_float,
    vector,
)
from .layouts import ROWS


@dataclass(frozen=True)
class Column:
    """One column's quantised activations, 32 of them.

    A record of 48 bytes: float32 d, s, h0, h1 and the int8 values q, where s is d times the sum of
    all q, and h0 and h1 are the sums of the first and the last 16.
    """

    isa: InstructionSet
    record: Value

    BYTES = 48

    def number(self, builder: ir.IRBuilder, index: int) -> Value:
        """Give d, s, h0 or h1 in all lanes."""
        return load_splat(builder, at(builder, self.record, 4 * index), FLOAT, self.isa.rows)

    def values(self, builder: ir.IRBuilder) -> Value:
        """Pointer to q."""
        return at(builder, self.record, 16)

    def scale(self, builder: ir.IRBuilder) -> Value:
        """Give d."""
        return self.number(builder, 0)

    def scaled_sum(self, builder: ir.IRBuilder) -> Value:
        """Give s."""
        return self.number(builder, 1)

    def half_sum(self, builder: ir.IRBuilder, half: int) -> Value:
        """Give h0 or h1."""
        return self.number(builder, 2 + half)


class Scheme(ABC):
    """How a tensor type turns sums of codes into values.

    Attributes:
        codes: which codes there are, multiplied if they are.
        parts: sums of a block: 1, or 2 when the halves have scales of their own.
    """

    codes: CodeRange
    parts: int

    @property
    def order(self) -> list[int]:
        """Quads in the order in which few registers are needed.

        A vector of nibbles holds quads j and j + 4; but one half's sums come after the other's.
        """
        if self.parts == 2:
            return list(range(QUADS))
        return [first + step for first in range(4) for step in (0, 4)]

    def multiplier(
        self, builder: ir.IRBuilder, isa: InstructionSet, scales: Value
    ) -> Callable[[int], Value] | None:
        """Give what writes the multiplier of a half's codes, see `QuadCodes`; here nothing."""
        return None

    @abstractmethod
    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        """Make float32 vectors for a block, used for all columns.

        Args:
            builder: writes here.
            isa: of the vectors.
            halves: the quant block's float16 numbers, as float32.
            scales: points to the block's bytes of scales, if the type has such.
        """

    @abstractmethod
    def accumulate(
        self,
        builder: ir.IRBuilder,
        sums: list[Value],
        factors: list[Value],
        column: Column,
        acc: Value,
    ) -> Value:
        """Add a block to the running sum of one column: int32 sums, `parts` of them."""


def _without(builder: ir.IRBuilder, floats: Value, excess: int, column: Column, half: int) -> Value:
    """Take `excess` times a half's activations away; whole numbers below 2^24, so exact."""
    negative = constant(floats.type, -excess)
    return fma(builder, negative, column.half_sum(builder, half), floats)


def _bytes(
    builder: ir.IRBuilder,
    isa: InstructionSet,
    scales: Value,
    index: int,
    *,
    is_signed: bool = False,
) -> Value:
    """The 16 rows' byte `index` of a block, as integers."""
    raw = load(builder, at(builder, scales, ROWS * index), vector(INT8, isa.rows), 1)
    return (builder.sext if is_signed else builder.zext)(raw, isa.integers)


class _WholeBlock(Scheme):
    """One scale and at most one minimum for a block."""

    parts = 1

    def __init__(self, codes: CodeRange) -> None:
        self.codes = codes

    def accumulate(
        self,
        builder: ir.IRBuilder,
        sums: list[Value],
        factors: list[Value],
        column: Column,
        acc: Value,
    ) -> Value:
        total = to_float(builder, sums[0])
        if self.codes.is_signed and column.isa.signed_excess:
            for half in range(2):
                total = _without(builder, total, column.isa.signed_excess, column, half)
        acc = fma(builder, total, builder.fmul(factors[0], column.scale(builder)), acc)
        if len(factors) == 1:
            return acc
        return fma(builder, factors[1], column.scaled_sum(builder), acc)


class _Stored(_WholeBlock):
    """``d * code`` or ``d * code + m``: Q8_0, Q4_1, Q5_1."""

    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        return halves


class _Centred(_WholeBlock):
    """``d * (code - offset)``: Q4_0, Q5_0."""

    def __init__(self, codes: CodeRange, offset: int) -> None:
        super().__init__(codes)
        self._offset = offset

    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        return [halves[0], builder.fmul(halves[0], constant(isa.floats, -self._offset))]


class _TwoLevel(_WholeBlock):
    """``d * scale * code - dmin * min``, products of at most 17 bits: Q4_K, Q5_K."""

    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        d, dmin = halves
        scale, minimum = (to_float(builder, _bytes(builder, isa, scales, i)) for i in range(2))
        return [builder.fmul(d, scale), builder.fneg(builder.fmul(dmin, minimum))]


class _HalvesCentred(Scheme):
    """``d * scale * (code - offset)``, a signed scale for each half: Q6_K, Q3_K."""

    parts = 2

    def __init__(self, codes: CodeRange, offset: int) -> None:
        self.codes = codes
        self._offset = offset

    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        numbers = (_bytes(builder, isa, scales, half, is_signed=True) for half in range(2))
        return [halves[0], *(to_float(builder, number) for number in numbers)]

    def accumulate(
        self,
        builder: ir.IRBuilder,
        sums: list[Value],
        factors: list[Value],
        column: Column,
        acc: Value,
    ) -> Value:
        d, scale0, scale1 = factors
        total0, total1 = (
            _without(builder, to_float(builder, total), self._offset, column, half)
            for half, total in enumerate(sums)
        )
        scaled = fma(builder, total1, scale1, builder.fmul(total0, scale0))
        return fma(builder, scaled, builder.fmul(d, column.scale(builder)), acc)


class _HalvesAffine(Scheme):
    """``d * scale * code - dmin * min``, scale and minimum in one byte: Q2_K.

    A code of 2 bits times a scale of 4 fits into a byte, so the sum of both halves is one.
    """

    parts = 1

    def __init__(self, codes: CodeRange) -> None:
        self.codes = codes

    def multiplier(
        self, builder: ir.IRBuilder, isa: InstructionSet, scales: Value
    ) -> Callable[[int], Value]:
        def write(half: int) -> Value:
            raw = _bytes(builder, isa, scales, half)
            scale = builder.and_(raw, constant(isa.integers, 15))
            twice = builder.or_(scale, builder.shl(scale, constant(isa.integers, 16)))
            return builder.bitcast(twice, vector(INT16, 2 * isa.rows))

        return write

    @property
    def order(self) -> list[int]:
        return list(range(QUADS))  # one half's multiplier after the other's

    def factors(
        self, builder: ir.IRBuilder, isa: InstructionSet, halves: list[Value], scales: Value
    ) -> list[Value]:
        raw = [_bytes(builder, isa, scales, half) for half in range(2)]
        minima = [builder.lshr(number, constant(isa.integers, 4)) for number in raw]
        return [halves[0], builder.fneg(halves[1]), *(to_float(builder, low) for low in minima)]

    def accumulate(
        self,
        builder: ir.IRBuilder,
        sums: list[Value],
        factors: list[Value],
        column: Column,
        acc: Value,
    ) -> Value:
        d, minus_dmin, min0, min1 = factors
        scale = column.scale(builder)
        acc = fma(builder, to_float(builder, sums[0]), builder.fmul(d, scale), acc)
        first = builder.fmul(min0, column.half_sum(builder, 0))
        minimum = fma(builder, min1, column.half_sum(builder, 1), first)
        return fma(builder, minimum, builder.fmul(minus_dmin, scale), acc)


_Q = GGMLQuantizationType
SCHEMES: Mapping[GGMLQuantizationType, Scheme] = MappingProxyType(
    {
        _Q.Q4_0: _Centred(CodeRange(15), 8),
        _Q.Q4_1: _Stored(CodeRange(15)),
        _Q.Q5_0: _Centred(CodeRange(31), 16),
        _Q.Q5_1: _Stored(CodeRange(31)),
        _Q.Q8_0: _Stored(CodeRange(128, is_signed=True)),
        _Q.Q2_K: _HalvesAffine(CodeRange(3 * 15)),
        _Q.Q3_K: _HalvesCentred(CodeRange(7), 4),
        _Q.Q4_K: _TwoLevel(CodeRange(15)),
        _Q.Q5_K: _TwoLevel(CodeRange(31)),
        _Q.Q6_K: _HalvesCentred(CodeRange(63), 32),
    }
)
"""The quantised types that have tiles."""

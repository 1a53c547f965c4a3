"""Codes of packed weights, taken out of their bit planes (see `layouts`) a quad at a time."""

from collections.abc import Callable
from functools import cache

from llvmlite import ir

from .isa import QUADS, InstructionSet
from .isa_ir import INT16, Value, at, constant, load, vector
from .layouts import Plane

_VECTOR_BYTES = 64


class QuadCodes:
    """The codes of 32 columns of one vector of rows.

    Each quad loads what it needs, so that no register is held between quads; LLVM joins loads
    where nothing forbids it.

    Args:
        isa: of the vector.
        planes: of the codes.
        record: pointer to the codes of its first row.
        multiplier: writes the int16 vector by which the codes of a half are multiplied, if they
            are; the products are bytes.
    """

    def __init__(
        self,
        isa: InstructionSet,
        planes: tuple[Plane, ...],
        record: Value,
        multiplier: Callable[[int], Value] | None,
    ) -> None:
        self._isa = isa
        self._planes = planes
        self._record = record
        self._multiplier = None if multiplier is None else cache(multiplier)

    def quad(self, builder: ir.IRBuilder, index: int) -> Value:
        """Codes of quad `index`, as bytes."""
        codes = self._stored(builder, index)
        if self._multiplier is None:
            return codes
        multiplier = self._multiplier(2 * index // QUADS)
        words = builder.bitcast(codes, multiplier.type)  # both bytes at once: neither overflows
        return builder.bitcast(builder.mul(words, multiplier), codes.type)

    def _stored(self, builder: ir.IRBuilder, index: int) -> Value:
        offset, codes = 0, None
        for plane in self._planes:
            number, lowest = _place(plane, index)
            source = at(builder, self._record, offset + _VECTOR_BYTES * number)
            stored = load(builder, source, self._isa.bytes, 4 * self._isa.rows)
            bits = _moved(builder, stored, plane, lowest)
            codes = bits if codes is None else builder.or_(codes, bits)
            offset += plane.n_bytes
        return codes


def _place(plane: Plane, index: int) -> tuple[int, int]:
    """Where a quad is: number of the vector in the plane, lowest bit in its bytes."""
    if plane.bits == 4:
        return index % 4, 4 * (index // 4)
    per_vector = 8 // plane.bits
    return index // per_vector, plane.bits * (index % per_vector)


def _moved(builder: ir.IRBuilder, source: Value, plane: Plane, lowest: int) -> Value:
    """Move the plane's bits of a code from bit `lowest` to where they belong."""
    right = lowest - plane.shift
    if plane.bits == 8:
        return source
    if plane.shift == 0 and lowest + plane.bits == 8:
        return builder.lshr(source, constant(source.type, right))  # nothing else is left
    mask = ((1 << plane.bits) - 1) << plane.shift
    return builder.and_(_shifted_words(builder, source, right), constant(source.type, mask))


def _shifted_words(builder: ir.IRBuilder, source: Value, right: int) -> Value:
    """Shift 16 bits at a time, as x86 can, to the left by a negative count; bytes get mixed."""
    if right == 0:
        return source
    words = builder.bitcast(source, vector(INT16, source.type.count // 2))
    shift = builder.lshr if right > 0 else builder.shl
    return builder.bitcast(shift(words, constant(words.type, abs(right))), source.type)

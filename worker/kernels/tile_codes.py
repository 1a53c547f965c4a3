"""Codes of packed weights, taken out of their bit planes (see `layouts`) a quad at a time."""

from llvmlite import ir

from .isa import InstructionSet
from .isa_ir import Value, at, constant, load
from .layouts import Plane

_VECTOR_BYTES = 64


class QuadCodes:
    """The codes of 32 columns of some rows, as vectors for the tile that is being written.

    A vector of a plane is loaded once, when a quad first needs it.
    """

    def __init__(
        self, isa: InstructionSet, planes: tuple[Plane, ...], record: Value, alignment: int
    ) -> None:
        self._isa = isa
        self._planes = planes
        self._record = record
        self._alignment = alignment
        self._loaded: dict[int, Value] = {}

    def quad(self, builder: ir.IRBuilder, index: int) -> Value:
        """Codes of quad `index`, bytes."""
        offset, codes = 0, None
        for plane in self._planes:
            bits = self._bits(builder, plane, offset, index)
            codes = bits if codes is None else builder.or_(codes, bits)
            offset += plane.n_bytes
        return codes

    def _bits(self, builder: ir.IRBuilder, plane: Plane, offset: int, index: int) -> Value:
        """The plane's bits of a quad, where they belong in the code."""
        n_vectors = plane.n_bytes // _VECTOR_BYTES
        if plane.bits == 4:
            number, position = index % n_vectors, index // n_vectors
        else:
            per_vector = 8 // plane.bits
            number, position = index // per_vector, index % per_vector
        source = self._load(builder, offset + _VECTOR_BYTES * number)
        return self._moved(builder, source, plane, plane.bits * position)

    def _load(self, builder: ir.IRBuilder, offset: int) -> Value:
        if offset not in self._loaded:
            source = at(builder, self._record, offset)
            self._loaded[offset] = load(builder, source, self._isa.bytes, self._alignment)
        return self._loaded[offset]

    def _moved(self, builder: ir.IRBuilder, source: Value, plane: Plane, lowest: int) -> Value:
        """Move the plane's bits of a code from bit `lowest` to where the plane belongs."""
        if plane.bits == 8:
            return source
        shifted = _shift_right(builder, source, lowest - plane.shift)
        mask = ((1 << plane.bits) - 1) << plane.shift
        return builder.and_(shifted, constant(source.type, mask))


def _shift_right(builder: ir.IRBuilder, source: Value, count: int) -> Value:
    """Shift bytes in their lanes; to the left by a negative count."""
    if count == 0:
        return source
    shift = builder.lshr if count > 0 else builder.shl
    return shift(source, constant(source.type, abs(count)))

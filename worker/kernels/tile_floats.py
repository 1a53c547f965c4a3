"""The code of a tile for plain floats: F16, BF16 and F32 weights times float32 activations.

``acc = fma(w, x, acc)`` column after column, which gives the same bits on every machine.
"""

from gguf.constants import GGMLQuantizationType
from llvmlite import ir

from .isa import InstructionSet
from .isa_ir import (
    FLOAT,
    INT16,
    Value,
    at,
    constant,
    fma,
    load,
    load_splat,
    loop,
    times,
    vector,
)
from .layouts import ROWS
from .tile_frame import RegisterTile


class FloatTile(RegisterTile):
    """A tile whose blocks are single columns of the weight."""

    @property
    def _vectors(self) -> int:
        return self._isa.float_vectors(self._together)

    def _multiplied(self, first: Value, x: Value, zeros: list[Value]) -> list[Value]:
        b = self._builder
        record_bytes = self._layout.code_record_bytes
        value_bytes = record_bytes // ROWS
        vector_bytes = value_bytes * self._isa.rows
        rows = at(b, self._weights, times(b, first, value_bytes))

        def turn(index: Value, state: list[Value]) -> list[Value]:
            record = at(b, rows, times(b, index, record_bytes))
            weights = [
                _values(b, self._isa, self._layout.qtype, at(b, record, vector_bytes * number))
                for number in range(self._vectors)
            ]
            tokens = self._of_columns(at(b, x, times(b, index, 4)), self._x_stride)
            splats = [load_splat(b, token, FLOAT, self._isa.rows) for token in tokens]
            pairs = [(w, splat) for splat in splats for w in weights]
            return [fma(b, w, a, acc) for (w, a), acc in zip(pairs, state, strict=True)]

        return loop(b, self._blocks, zeros, turn)


def _values(
    builder: ir.IRBuilder, isa: InstructionSet, qtype: GGMLQuantizationType, base: Value
) -> Value:
    """Weights of one column as float32."""
    if qtype == GGMLQuantizationType.F16:
        return isa.halves(builder, base)
    if qtype == GGMLQuantizationType.F32:
        return load(builder, base, isa.floats, 4)
    assert qtype == GGMLQuantizationType.BF16, qtype
    top = builder.zext(load(builder, base, vector(INT16, isa.rows), 2), isa.integers)
    return builder.bitcast(builder.shl(top, constant(isa.integers, 16)), isa.floats)

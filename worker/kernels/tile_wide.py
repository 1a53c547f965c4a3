"""The code of a tile for quantised weights and many columns: a block's weights are in registers.

Codes are taken out of their planes once for all columns. Then the columns follow one by one, in a
loop, each with its sums in the result's memory.
"""

from llvmlite import ir

from .isa import QUADS
from .isa_ir import INT64, Value, at, constant, load, loop, loop_until, store, times
from .tile_frame import Tile
from .tile_scales import SCHEMES, Column
from .tile_walk import WeightBlock, WeightWalk


class WideTile(Tile):
    """Multiplies a block with one column after the other."""

    @property
    def _vectors(self) -> int:
        return self._isa.wide_vectors

    def _write_rows(self, first: Value) -> None:
        b, layout, isa = self._builder, self._layout, self._isa
        out = at(b, self._out, times(b, first, 4))
        self._clear(out)
        walk = WeightWalk(b, layout, isa, self._weights, self._blocks, first, self._vectors)

        def body(block: WeightBlock, state: list[Value]) -> list[Value]:
            self._write_block(block, out)
            return state

        walk.write([], body)

    def _clear(self, out: Value) -> None:
        """Begin all sums with 0."""
        b = self._builder

        def turn(index: Value, state: list[Value]) -> list[Value]:
            column = at(b, out, b.mul(index, self._out_stride))
            for place in self._places(column):
                store(b, constant(self._isa.floats, 0.0), place, 4)
            return state

        loop(b, ir.Constant(INT64, self._columns), [], turn)

    def _write_block(self, block: WeightBlock, out: Value) -> None:
        """Add a block to the sums of all columns."""
        b, isa, scheme = self._builder, self._isa, SCHEMES[self._layout.qtype]
        operands = [
            [isa.operand(b, code.quad(b, number), scheme.codes) for code in block.codes]
            for number in range(QUADS)
        ]
        factors = [
            scheme.factors(b, isa, halves, scales)
            for halves, scales in zip(block.halves, block.scales, strict=True)
        ]

        def turn(state: list[Value]) -> list[Value]:
            x, out = state
            self._write_column(operands, factors, Column(isa, x), out)
            return [at(b, x, self._x_stride), at(b, out, self._out_stride)]

        x = at(b, self._x, times(b, block.index, Column.BYTES))
        end = at(b, x, times(b, self._x_stride, self._columns))
        loop_until(b, end, [x, out], turn)

    def _write_column(
        self,
        operands: list[list[Value]],
        factors: list[list[Value]],
        token: Column,
        out: Value,
    ) -> None:
        """Add a block to the sums of one column, which are at pointer `out`."""
        b, isa, scheme = self._builder, self._isa, SCHEMES[self._layout.qtype]
        of_part = QUADS // scheme.parts
        quad = isa.quads(b, token.values(b))
        sums = [
            [isa.sums(scheme.codes, of_part, len(factors)) for _ in range(scheme.parts)]
            for _ in factors
        ]
        for number in scheme.order:
            activations = quad(number)
            for operand, parts in zip(operands[number], sums, strict=True):
                parts[number // of_part].add(b, operand, activations)
        for parts, factor, place in zip(sums, factors, self._places(out), strict=True):
            totals = [part.total(b) for part in parts]
            acc = load(b, place, isa.floats, 4)
            store(b, scheme.accumulate(b, totals, factor, token, acc), place, 4)

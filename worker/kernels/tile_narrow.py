"""The code of a tile for quantised weights and few columns: all sums are in registers."""

from .isa import QUADS
from .isa_ir import Value, at, times
from .tile_frame import RegisterTile
from .tile_scales import SCHEMES, Column
from .tile_walk import WeightBlock, WeightWalk


class NarrowTile(RegisterTile):
    """Takes a quad of codes out of its planes and multiplies it with all columns, then the next."""

    @property
    def _vectors(self) -> int:
        return self._isa.narrow_vectors(self._together)

    def _multiplied(self, first: Value, x: Value, zeros: list[Value]) -> list[Value]:
        b, layout, isa = self._builder, self._layout, self._isa
        walk = WeightWalk(b, layout, isa, self._weights, self._blocks, first, self._vectors)

        def body(block: WeightBlock, state: list[Value]) -> list[Value]:
            record = at(b, x, times(b, block.index, Column.BYTES))
            tokens = self._of_columns(record, self._x_stride)
            return self._accumulated(block, [Column(isa, token) for token in tokens], state)

        return walk.write(zeros, body)

    def _accumulated(
        self, block: WeightBlock, tokens: list[Column], state: list[Value]
    ) -> list[Value]:
        """Add a block to the sums of all columns and vectors of rows."""
        b, scheme = self._builder, SCHEMES[self._layout.qtype]
        totals = self._totals(block, tokens)
        factors = [
            scheme.factors(b, self._isa, halves, scales)
            for halves, scales in zip(block.halves, block.scales, strict=True)
        ]
        places = [(token, factor) for token in tokens for factor in factors]
        return [
            scheme.accumulate(b, sums, factor, token, acc)
            for (token, factor), sums, acc in zip(places, totals, state, strict=True)
        ]

    def _totals(self, block: WeightBlock, tokens: list[Column]) -> list[list[Value]]:
        """Integer sums of each part of the block, for each column and vector of rows."""
        b, isa, scheme = self._builder, self._isa, SCHEMES[self._layout.qtype]
        quads = [isa.quads(b, token.values(b)) for token in tokens]
        of_part = QUADS // scheme.parts
        count = len(tokens) * len(block.codes)
        sums = [
            [isa.sums(scheme.codes, of_part, count) for _ in range(scheme.parts)]
            for _ in range(count)
        ]
        for number in scheme.order:
            operands = [isa.operand(b, code.quad(b, number), scheme.codes) for code in block.codes]
            pairs = [(operand, quad(number)) for quad in quads for operand in operands]
            growing = [parts[number // of_part] for parts in sums]
            for (operand, quad), part in zip(pairs, growing, strict=True):
                part.add(b, operand, quad)
            for part in growing:
                part.settle(b)
        return [[part.total(b) for part in parts] for parts in sums]

"""The code of a tile for quantised weights: loops over blocks of 32 columns."""

from llvmlite import ir

from .isa import QUADS
from .isa_ir import INT64, Value, at, loop, times
from .layouts import CODE_COLUMNS, ROWS
from .tile_codes import QuadCodes
from .tile_frame import Tile
from .tile_scales import SCHEMES, Column


class BlockTile(Tile):
    """A tile of integer products, scaled block by block."""

    @property
    def _inner(self) -> int:
        """Blocks of 32 columns in a quant block."""
        return self._layout.block_columns // CODE_COLUMNS

    def _multiplied(self, first: Value, zeros: list[Value]) -> list[Value]:
        b = self._builder
        self._codes = at(b, self._weights, times(b, first, 4))
        area = at(b, self._weights, times(b, self._blocks, self._layout.code_record_bytes))
        self._halves = at(b, area, times(b, first, 2))
        behind_halves = 2 * ROWS * self._layout.scale_halves
        self._bytes = at(b, at(b, area, behind_halves), first)
        count = b.sdiv(self._blocks, ir.Constant(INT64, self._inner))
        return loop(b, count, zeros, self._quant_block)

    def _quant_block(self, index: Value, state: list[Value]) -> list[Value]:
        b = self._builder
        offset = times(b, index, self._layout.scale_record_bytes)
        halves = [self._load_halves(at(b, self._halves, offset), v) for v in self._vectors]
        first = times(b, index, self._inner)
        scales = at(b, self._bytes, offset)
        if self._inner == 1:
            return self._block(first, halves, scales, state)
        block_scales = ROWS * self._layout.scale_bytes // self._inner

        def turn(number: Value, state: list[Value]) -> list[Value]:
            of_block = at(b, scales, times(b, number, block_scales))
            return self._block(b.add(first, number), halves, of_block, state)

        return loop(b, ir.Constant(INT64, self._inner), state, turn)

    def _load_halves(self, record: Value, number: int) -> list[Value]:
        """The quant block's float16 numbers of one vector of rows."""
        rows = 2 * self._isa.rows * number
        return [
            self._isa.halves(self._builder, at(self._builder, record, 2 * ROWS * kind + rows))
            for kind in range(self._layout.scale_halves)
        ]

    def _block(
        self, index: Value, halves: list[list[Value]], scales: Value, state: list[Value]
    ) -> list[Value]:
        """Add 32 columns of the weight to the sums."""
        b, isa, scheme = self._builder, self._isa, SCHEMES[self._layout.qtype]
        x = at(b, self._x, times(b, index, Column.BYTES))
        tokens = [Column(isa, record) for record in self._of_columns(x, self._x_stride)]
        totals = self._totals(index, tokens)
        factors = [
            scheme.factors(b, isa, halves[v], at(b, scales, isa.rows * v)) for v in self._vectors
        ]
        places = [(token, v) for token in tokens for v in self._vectors]
        return [
            scheme.accumulate(b, sums, factors[v], token, acc)
            for (token, v), sums, acc in zip(places, totals, state, strict=True)
        ]

    def _totals(self, index: Value, tokens: list[Column]) -> list[list[Value]]:
        """Integer sums of each part of the block, for each token and vector of rows."""
        b, isa, scheme = self._builder, self._isa, SCHEMES[self._layout.qtype]
        record = at(b, self._codes, times(b, index, self._layout.code_record_bytes))
        width = 4 * isa.rows
        codes = [
            QuadCodes(isa, self._layout.planes, at(b, record, width * v), width)
            for v in self._vectors
        ]
        quads = [isa.quads(b, token.values(b)) for token in tokens]
        sums = [
            [isa.sums(scheme.codes) for _ in range(scheme.parts)] for _ in tokens for _ in codes
        ]
        for number in _order(scheme.parts):
            operands = [isa.operand(b, code.quad(b, number), scheme.codes) for code in codes]
            pairs = [(operand, quad(number)) for quad in quads for operand in operands]
            for (operand, quad), parts in zip(pairs, sums, strict=True):
                parts[number * scheme.parts // QUADS].add(b, operand, quad)
        return [[part.total(b) for part in parts] for parts in sums]


def _order(parts: int) -> list[int]:
    """Quads in the order in which few registers are needed: a vector of nibbles holds j and j + 4.

    With two parts a half comes after the other, so that only one needs sums.
    """
    if parts == 2:
        return list(range(QUADS))
    return [first + step for first in range(4) for step in (0, 4)]

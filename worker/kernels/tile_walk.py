"""The way through packed weights: blocks of 32 columns, with their codes and scales."""

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from .isa import InstructionSet
from .isa_ir import INT64, Value, at, loop, prefetch, times
from .layouts import CODE_COLUMNS, ROWS, Layout
from .tile_codes import QuadCodes
from .tile_scales import SCHEMES

_CACHE_LINE = 64
_AHEAD = 16384
"""Bytes of codes to prefetch ahead: the CPU's own prefetchers stop at pages and come late.

Into the second-level cache: so far ahead, lines would push each other out of the first one.
"""


@dataclass(frozen=True)
class WeightBlock:
    """32 columns of some rows; a list has an entry for each vector of rows.

    Attributes:
        index: which columns: the number of the block (int64 value).
        codes: of the columns.
        halves: the quant block's float16 numbers, as float32.
        scales: pointers to the block's bytes of scales.
    """

    index: Value
    codes: list[QuadCodes]
    halves: list[list[Value]]
    scales: list[Value]


class WeightWalk:
    """Writes the loops over all blocks of some rows of a row block.

    Args:
        builder: writes here.
        layout: of the weights.
        isa: of the vectors.
        weights: pointer to the row block.
        blocks: of 32 columns in it (int64 value).
        first: the first row (int64 value).
        vectors: vectors of rows.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        layout: Layout,
        isa: InstructionSet,
        weights: Value,
        blocks: Value,
        first: Value,
        vectors: int,
    ) -> None:
        self._builder = builder
        self._layout = layout
        self._isa = isa
        self._blocks = blocks
        self._first_rows = [isa.rows * vector for vector in range(vectors)]
        self._codes = at(builder, weights, times(builder, first, 4))
        area = at(builder, weights, times(builder, blocks, layout.code_record_bytes))
        self._halves = at(builder, area, times(builder, first, 2))
        self._bytes = at(builder, at(builder, area, 2 * ROWS * layout.scale_halves), first)

    def write(
        self,
        state: list[Value],
        body: Callable[[WeightBlock, list[Value]], list[Value]],
    ) -> list[Value]:
        """Do ``state = body(block, state)`` for each block; give the last state."""
        b = self._builder
        inner = self._layout.block_columns // CODE_COLUMNS
        scale_bytes = ROWS * self._layout.scale_bytes // inner

        def quant_block(index: Value, state: list[Value]) -> list[Value]:
            offset = times(b, index, self._layout.scale_record_bytes)
            halves = self._load_halves(at(b, self._halves, offset))
            first, scales = times(b, index, inner), at(b, self._bytes, offset)

            def turn(number: Value, state: list[Value]) -> list[Value]:
                of_block = at(b, scales, times(b, number, scale_bytes))
                return body(self._block(b.add(first, number), halves, of_block), state)

            if inner == 1:
                return body(self._block(first, halves, scales), state)
            return loop(b, ir.Constant(INT64, inner), state, turn)

        return loop(b, b.sdiv(self._blocks, ir.Constant(INT64, inner)), state, quant_block)

    def _load_halves(self, record: Value) -> list[list[Value]]:
        """Load the quant block's float16 numbers."""
        return [
            [
                self._isa.halves(self._builder, at(self._builder, record, 2 * (ROWS * kind + row)))
                for kind in range(self._layout.scale_halves)
            ]
            for row in self._first_rows
        ]

    def _block(self, index: Value, halves: list[list[Value]], scales: Value) -> WeightBlock:
        b = self._builder
        record = at(b, self._codes, times(b, index, self._layout.code_record_bytes))
        self._fetch(record, scales)
        of_rows = [at(b, scales, row) for row in self._first_rows]
        codes = [
            QuadCodes(
                self._isa,
                self._layout.planes,
                at(b, record, 4 * row),
                SCHEMES[self._layout.qtype].multiplier(b, self._isa, own_scales),
            )
            for row, own_scales in zip(self._first_rows, of_rows, strict=True)
        ]
        return WeightBlock(index, codes, halves, of_rows)

    def _fetch(self, record: Value, scales: Value) -> None:
        """Prefetch a later block's codes and scales; behind a row block the next one begins."""
        b, layout = self._builder, self._layout
        blocks = _AHEAD // layout.code_record_bytes
        for line in range(0, layout.code_record_bytes, _CACHE_LINE):
            prefetch(b, at(b, record, blocks * layout.code_record_bytes + line))
        scale_bytes = layout.scale_record_bytes * CODE_COLUMNS // layout.block_columns
        prefetch(b, at(b, scales, blocks * scale_bytes))

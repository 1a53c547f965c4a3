"""What all tiles share: their arguments, the way through 16 rows, and the writing of results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llvmlite import ir

from .isa import InstructionSet
from .isa_ir import INT64, Value, at, constant, loop, pointer, store, times
from .layouts import ROWS, Layout

ARGUMENTS = 6


class Tile(ABC):
    """Writes the code of one tile: 16 rows times some columns (tokens).

    As many rows as there are registers for go through all blocks at the same time; sums stay in
    registers: one vector for each column and each vector of rows, columns outermost.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        layout: Layout,
        isa: InstructionSet,
        columns: int,
        row_vectors: int,
        arguments: Sequence[Value],
    ) -> None:
        assert len(arguments) == ARGUMENTS, arguments
        weights, x, self._x_stride, out, self._out_stride, self._blocks = arguments
        self._builder = builder
        self._layout = layout
        self._isa = isa
        self._columns = range(columns)
        self._vectors = range(row_vectors)
        self._weights = pointer(builder, weights)
        self._x = pointer(builder, x)
        self._out = pointer(builder, out)

    def write(self) -> None:
        """Write the whole tile at the builder's position."""
        rows = self._isa.rows * len(self._vectors)
        if rows == ROWS:
            self._write_rows(ir.Constant(INT64, 0))
            return

        def turn(index: Value, state: list[Value]) -> list[Value]:
            self._write_rows(times(self._builder, index, rows))
            return state

        loop(self._builder, ir.Constant(INT64, ROWS // rows), [], turn)

    @abstractmethod
    def _multiplied(self, first: Value, zeros: list[Value]) -> list[Value]:
        """Write all blocks of the rows from `first` (int64 value) on; give their sums."""

    def _write_rows(self, first: Value) -> None:
        b = self._builder
        zero = constant(self._isa.floats, 0.0)
        sums = iter(self._multiplied(first, [zero for _ in self._columns for _ in self._vectors]))
        for out in self._of_columns(at(b, self._out, times(b, first, 4)), self._out_stride):
            for vector in self._vectors:
                store(b, next(sums), at(b, out, 4 * self._isa.rows * vector), 4)

    def _of_columns(self, base: Value, stride: Value) -> list[Value]:
        """Pointers for all columns, `stride` bytes from each to the next."""
        pointers = [base]
        for _ in self._columns[1:]:
            pointers.append(at(self._builder, pointers[-1], stride))
        return pointers

"""What all tiles share: their arguments, the way through 16 rows, and the writing of results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from llvmlite import ir

from .isa import InstructionSet
from .isa_ir import INT64, Body, Value, at, constant, loop, pointer, store, times
from .layouts import ROWS, Layout

ARGUMENTS = 6


class Tile(ABC):
    """Writes the code of one tile: 16 rows times some columns (tokens).

    As many rows as there are registers for go through all blocks at the same time.
    """

    def __init__(
        self,
        builder: ir.IRBuilder,
        layout: Layout,
        isa: InstructionSet,
        columns: int,
        arguments: Sequence[Value],
    ) -> None:
        assert len(arguments) == ARGUMENTS, arguments
        weights, x, self._x_stride, out, self._out_stride, self._blocks = arguments
        self._builder = builder
        self._layout = layout
        self._isa = isa
        self._columns = columns
        self._weights = pointer(builder, weights)
        self._x = pointer(builder, x)
        self._out = pointer(builder, out)

    def write(self) -> None:
        """Write the whole tile at the builder's position."""
        rows = self._isa.rows * self._vectors

        def turn(index: Value, state: list[Value]) -> list[Value]:
            self._write_rows(times(self._builder, index, rows))
            return state

        _repeat(self._builder, ROWS // rows, [], turn)

    @property
    @abstractmethod
    def _vectors(self) -> int:
        """Vectors of rows that are worked on at the same time."""

    @abstractmethod
    def _write_rows(self, first: Value) -> None:
        """Write all blocks of the rows from `first` (int64 value) on, for all columns."""

    def _places(self, out: Value) -> list[Value]:
        """Pointers to a column's results, one for each vector of rows."""
        width = 4 * self._isa.rows
        return [at(self._builder, out, width * vector) for vector in range(self._vectors)]


class RegisterTile(Tile):
    """A tile whose sums are in registers: one for each column and each vector of rows.

    Columns that there are no registers for follow in further turns.
    """

    @property
    def _together(self) -> int:
        """Columns of one turn."""
        return min(self._columns, self._isa.narrow_columns)

    @abstractmethod
    def _multiplied(self, first: Value, x: Value, zeros: list[Value]) -> list[Value]:
        """Write all blocks of rows from `first` on and of columns from pointer `x` on.

        Gives the sums in the order of `zeros`, columns outermost.
        """

    def _write_rows(self, first: Value) -> None:
        def turn(index: Value, state: list[Value]) -> list[Value]:
            x, out = state
            zeros = [constant(self._isa.floats, 0.0)] * (self._together * self._vectors)
            sums = iter(self._multiplied(first, x, zeros))
            for column in self._of_columns(out, self._out_stride):
                for place in self._places(column):
                    store(self._builder, next(sums), place, 4)
            return [self._following(x, self._x_stride), self._following(out, self._out_stride)]

        out = at(self._builder, self._out, times(self._builder, first, 4))
        _repeat(self._builder, self._columns // self._together, [self._x, out], turn)

    def _of_columns(self, base: Value, stride: Value) -> list[Value]:
        """Pointers for the columns of a turn, `stride` bytes from each to the next."""
        pointers = [base]
        while len(pointers) < self._together:
            pointers.append(at(self._builder, pointers[-1], stride))
        return pointers

    def _following(self, base: Value, stride: Value) -> Value:
        """Pointer for the first column of the next turn."""
        return at(self._builder, base, times(self._builder, stride, self._together))


def _repeat(builder: ir.IRBuilder, count: int, state: list[Value], body: Body) -> None:
    """Loop, without the loop when there is one turn."""
    if count == 1:
        body(ir.Constant(INT64, 0), state)
    else:
        loop(builder, ir.Constant(INT64, count), state, body)

"""Instruction sets of CPUs behind one interface, for the tiles that multiply quantised weights.

A tile works on 16 rows of a packed weight (see `layouts`): a vector of codes holds a *quad*, four
columns, of `rows` rows, a row in each 32-bit lane. The activations of that quad stand in all lanes.
What differs from CPU to CPU is how such products are summed up without losing a bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from .isa_ir import FLOAT, HALF, INT8, INT32, Value, at, fixed, load, load_splat, vector

QUADS = 8
"""Quads in a block of 32 columns."""

LARGEST_ACTIVATION = 127
"""Activations lie between -127 and 127."""


@dataclass(frozen=True, slots=True)
class CodeRange:
    """Which codes a type has.

    Attributes:
        largest: the largest absolute value of a code.
        is_signed: whether a code is an int8; otherwise it is a uint8.
    """

    largest: int
    is_signed: bool = False


class Sums(ABC):
    """Sums of products, one for each row of a vector, of one column, as they grow in the code."""

    @abstractmethod
    def add(self, builder: ir.IRBuilder, weights: Value, quad: Value) -> None:
        """Add a quad: what `InstructionSet.operand` gave, times the activations."""

    @abstractmethod
    def settle(self, builder: ir.IRBuilder) -> None:
        """Keep LLVM from adding later what was added so far."""

    @abstractmethod
    def total(self, builder: ir.IRBuilder) -> Value:
        """Give the sums as int32 lanes; at least one quad was added."""


class InstructionSet(ABC):
    """How a CPU multiplies bytes and widens numbers, and how many registers it has for that.

    Attributes:
        name: for choosing it.
        marks: patterns that are all found in the assembly of `feature_probe` on a CPU that has it.
        rows: 32-bit lanes of its vectors: 16, 8 or 4.
        signed_excess: a signed code counts as many more in `Sums`.
        narrow_columns: columns at most whose sums are in registers, a power of two.
        wide_vectors: vectors of rows in a `WideTile`; 0 when a `NarrowTile` is always better.
        register: letter of its vector registers in inline assembly; empty when there is none.
    """

    name: str
    marks: tuple[str, ...]
    rows: int
    signed_excess: int = 0
    narrow_columns: int = 4
    wide_vectors: int = 0
    register: str = ""

    @abstractmethod
    def narrow_vectors(self, columns: int) -> int:
        """Vectors of rows that a `NarrowTile` of so many columns works on at the same time."""

    def float_vectors(self, columns: int) -> int:
        """The same for a tile of plain floats: eight vectors of sums are enough, few are slow."""
        return max(1, min(16 // self.rows, 8 // columns))

    def is_wide(self, kind: CodeRange, columns: int) -> bool:
        """Tell whether a `WideTile` is best: a block's operands fit into the registers."""
        return self.wide_vectors > 0 and columns > 2

    @abstractmethod
    def operand(self, builder: ir.IRBuilder, codes: Value, kind: CodeRange) -> Value:
        """Prepare a vector of codes for `Sums.add`, once for all columns."""

    @abstractmethod
    def sums(self, kind: CodeRange, quads: int, together: int) -> Sums:
        """Begin sums with nothing in them.

        Args:
            kind: of the codes that will be added.
            quads: how many of them.
            together: how many sums grow at the same time, these included.
        """

    def settled(self, builder: ir.IRBuilder, value: Value) -> Value:
        """Have a value computed before all that is loaded further down, see `fixed`."""
        return fixed(builder, value, self.register) if self.register else value

    def quads(self, builder: ir.IRBuilder, activations: Value) -> Callable[[int], Value]:
        """Give, for a pointer to 32 activations, how to get a quad of them in all lanes."""

        def quad(index: int) -> Value:
            word = load_splat(builder, at(builder, activations, 4 * index), INT32, self.rows)
            return builder.bitcast(word, self.bytes)

        return quad

    def halves(self, builder: ir.IRBuilder, base: Value) -> Value:
        """Load `rows` float16 numbers as float32."""
        return builder.fpext(load(builder, base, vector(HALF, self.rows), 2), self.floats)

    @property
    def bytes(self) -> ir.VectorType:
        """A vector of codes."""
        return vector(INT8, 4 * self.rows)

    @property
    def integers(self) -> ir.VectorType:
        """A vector of int32."""
        return vector(INT32, self.rows)

    @property
    def floats(self) -> ir.VectorType:
        """A vector of float32."""
        return vector(FLOAT, self.rows)

"""CPUs with an instruction that adds four products of bytes to a 32-bit lane."""

from collections.abc import Callable
from functools import reduce

from llvmlite import ir

from .isa import QUADS, CodeRange, InstructionSet, Sums
from .isa_ir import INT32, Value, at, call, constant, lane, load, vector


class _DotSums(Sums):
    """Sums that grow in turn: an instruction can begin before the one before it has ended."""

    def __init__(self, isa: "DotInstructionSet", chains: int) -> None:
        self._isa = isa
        self._chains: list[Value] = [constant(isa.integers, 0)] * chains
        self._quads = 0

    def add(self, builder: ir.IRBuilder, weights: Value, quad: Value) -> None:
        chain = self._quads % len(self._chains)
        arguments = [self._chains[chain], weights, quad]
        self._chains[chain] = call(builder, self._isa.dot, self._isa.integers, arguments)
        self._quads += 1

    def settle(self, builder: ir.IRBuilder) -> None:
        last = (self._quads - 1) % len(self._chains)
        self._chains[last] = self._isa.settled(builder, self._chains[last])

    def total(self, builder: ir.IRBuilder) -> Value:
        return reduce(builder.add, self._chains)


class DotInstructionSet(InstructionSet):
    """A CPU with a dot product of four bytes.

    Attributes:
        dot: name of the LLVM intrinsic ``dot(int32 sums, weights, activations)``.
        spare_sums: registers for sums when it needs several to keep busy.
    """

    dot: str
    spare_sums: int = 0

    def sums(self, kind: CodeRange, quads: int, together: int) -> Sums:
        """Begin sums, in two chains when the registers suffice and one would be long."""
        return _DotSums(self, 2 if quads == QUADS and 2 * together <= self.spare_sums else 1)


class _Vnni(DotInstructionSet):
    """x86's dot product takes unsigned weights: signed ones are raised by 128."""

    signed_excess = 128

    def operand(self, builder: ir.IRBuilder, codes: Value, kind: CodeRange) -> Value:
        """Prepare codes."""
        return builder.xor(codes, constant(self.bytes, 0x80)) if kind.is_signed else codes


class AvxVnni(_Vnni):
    """x86 with a 256-bit dot product: Intel's desktop and laptop CPUs from Alder Lake on."""

    name = "avx-vnni"
    marks = (r"\bvpdpbusd\b.*%ymm", r"\bvcvtph2psx?\b", r"\bvfmadd")
    rows = 8
    dot = "llvm.x86.avx512.vpdpbusd.256"
    wide_vectors = 1
    register = "x"
    spare_sums = 4

    def narrow_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 2 if columns == 1 else 1


class Avx512Vnni(_Vnni):
    """x86 with AVX-512 and its VNNI: Intel's servers from Cascade Lake on, AMD from Zen 4 on."""

    name = "avx512-vnni"
    marks = (r"\bvpdpbusd\b.*%zmm",)
    rows = 16
    dot = "llvm.x86.avx512.vpdpbusd.512"
    narrow_columns = 8
    register = "v"
    spare_sums = 16

    def narrow_vectors(self, columns: int) -> int:
        """One vector holds all rows."""
        return 1


class NeonDot(DotInstructionSet):
    """arm64 with the dot product extension: Apple from M1 on, Graviton 2 and the like."""

    name = "neon-dot"
    marks = (r"\bsdot\b",)
    rows = 4
    dot = "llvm.aarch64.neon.sdot.v4i32.v16i8"
    wide_vectors = 2
    register = "w"

    def narrow_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 4 if columns == 1 else 2

    def operand(self, builder: ir.IRBuilder, codes: Value, kind: CodeRange) -> Value:
        """Prepare codes."""
        return codes  # unsigned codes are below 64: as signed ones they are the same

    def quads(self, builder: ir.IRBuilder, activations: Value) -> Callable[[int], Value]:
        """Four quads in a register; the instruction chooses a lane itself."""
        registers = [
            load(builder, at(builder, activations, 16 * half), vector(INT32, 4), 4)
            for half in range(2)
        ]

        def quad(index: int) -> Value:
            return builder.bitcast(lane(builder, registers[index // 4], index % 4, 4), self.bytes)

        return quad

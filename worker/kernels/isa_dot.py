"""CPUs with an instruction that adds four products of bytes to a 32-bit lane."""

from collections.abc import Callable

from llvmlite import ir

from .isa import CodeRange, InstructionSet, Sums
from .isa_ir import INT32, Value, at, call, constant, lane, load, vector


class _DotSums(Sums):
    def __init__(self, isa: "DotInstructionSet") -> None:
        self._isa = isa
        self._total: Value = constant(isa.integers, 0)

    def add(self, builder: ir.IRBuilder, weights: Value, quad: Value) -> None:
        arguments = [self._total, weights, quad]
        self._total = call(builder, self._isa.dot, self._isa.integers, arguments)

    def total(self, builder: ir.IRBuilder) -> Value:
        return self._total


class DotInstructionSet(InstructionSet):
    """A CPU with a dot product of four bytes.

    Attributes:
        dot: name of the LLVM intrinsic ``dot(int32 sums, weights, activations)``.
    """

    dot: str

    def sums(self, kind: CodeRange) -> Sums:
        """Begin sums."""
        return _DotSums(self)


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

    def row_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 2 if columns <= 2 else 1


class Avx512Vnni(_Vnni):
    """x86 with AVX-512 and its VNNI: Intel's servers from Cascade Lake on, AMD from Zen 4 on."""

    name = "avx512-vnni"
    marks = (r"\bvpdpbusd\b.*%zmm",)
    rows = 16
    dot = "llvm.x86.avx512.vpdpbusd.512"

    def row_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 1


class NeonDot(DotInstructionSet):
    """arm64 with the dot product extension: Apple from M1 on, Graviton 2 and the like."""

    name = "neon-dot"
    marks = (r"\bsdot\b",)
    rows = 4
    dot = "llvm.aarch64.neon.sdot.v4i32.v16i8"

    def row_vectors(self, columns: int) -> int:
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

"""Products of bytes, added up in pairs of int16: AVX2, and any CPU in plain vector code."""

from abc import abstractmethod

from llvmlite import ir

from .isa import LARGEST_ACTIVATION, CodeRange, InstructionSet, Sums
from .isa_half import widened_bits
from .isa_ir import INT1, INT16, Value, call, constant, load, vector


class _PairSums(Sums):
    """Sums that stay in 16 bits for as many quads as fit, and go to 32 bits then."""

    def __init__(self, isa: "PairInstructionSet", kind: CodeRange) -> None:
        self._isa = isa
        self._kind = kind
        self._room = 32767 // (2 * LARGEST_ACTIVATION * kind.largest)  # quads
        self._quads = 0
        self._pairs: Value = None
        self._total: Value = None

    def add(self, builder: ir.IRBuilder, weights: Value, quad: Value) -> None:
        pairs = self._isa.pairs(builder, weights, quad, self._kind)
        self._pairs = pairs if self._pairs is None else builder.add(self._pairs, pairs)
        self._quads += 1
        if self._quads == self._room:
            self._widen(builder)

    def settle(self, builder: ir.IRBuilder) -> None:
        if self._pairs is not None:
            self._pairs = self._isa.settled(builder, self._pairs)
        elif self._total is not None:
            self._total = self._isa.settled(builder, self._total)

    def total(self, builder: ir.IRBuilder) -> Value:
        if self._pairs is not None:
            self._widen(builder)
        return self._total

    def _widen(self, builder: ir.IRBuilder) -> None:
        wide = self._isa.widen(builder, self._pairs)
        self._total = wide if self._total is None else builder.add(self._total, wide)
        self._pairs, self._quads = None, 0


class PairInstructionSet(InstructionSet):
    """A CPU that has no instruction for four products, but can sum up two."""

    def sums(self, kind: CodeRange, quads: int, together: int) -> Sums:
        """Begin sums."""
        return _PairSums(self, kind)

    @property
    def words(self) -> ir.VectorType:
        """A vector of int16."""
        return vector(INT16, 2 * self.rows)

    @abstractmethod
    def pairs(self, builder: ir.IRBuilder, weights: Value, quad: Value, kind: CodeRange) -> Value:
        """Sums of two neighbours' products, as int16."""

    @abstractmethod
    def widen(self, builder: ir.IRBuilder, pairs: Value) -> Value:
        """Sums of two neighbours, as int32."""


class Avx2(PairInstructionSet):
    """x86 with AVX2, FMA and F16C: Intel from Haswell on, AMD from Excavator on."""

    name = "avx2"
    marks = (r"\bvpaddd\b.*%ymm", r"\bvcvtph2psx?\b", r"\bvfmadd")
    rows = 8
    wide_vectors = 1
    register = "x"

    def narrow_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 2 if columns == 1 else 1

    def is_wide(self, kind: CodeRange, columns: int) -> bool:
        """Signed codes have operands of two registers, which are too many."""
        return not kind.is_signed and super().is_wide(kind, columns)

    def operand(self, builder: ir.IRBuilder, codes: Value, kind: CodeRange) -> Value:
        """Prepare codes."""
        if not kind.is_signed:
            return codes
        magnitudes = call(builder, "llvm.abs.v32i8", self.bytes, [codes, ir.Constant(INT1, 0)])
        return codes, magnitudes

    def pairs(self, builder: ir.IRBuilder, weights: Value, quad: Value, kind: CodeRange) -> Value:
        """Multiply and add neighbours."""
        if kind.is_signed:  # the weights' signs go to the activations: -127..127 have an opposite
            codes, weights = weights
            quad = call(builder, "llvm.x86.avx2.psign.b", self.bytes, [quad, codes])
        return call(builder, "llvm.x86.avx2.pmadd.ub.sw", self.words, [weights, quad])

    def widen(self, builder: ir.IRBuilder, pairs: Value) -> Value:
        """Add neighbours."""
        ones = constant(self.words, 1)
        return call(builder, "llvm.x86.avx2.pmadd.wd", self.integers, [pairs, ones])


class Generic(PairInstructionSet):
    """Any CPU: no instruction is named, LLVM chooses all of them."""

    name = "generic"
    marks = ()
    rows = 4

    def narrow_vectors(self, columns: int) -> int:
        """Give how many vectors of rows the registers can hold."""
        return 2 if columns == 1 else 1

    def operand(self, builder: ir.IRBuilder, codes: Value, kind: CodeRange) -> Value:
        """Even and odd codes as int16."""
        words = builder.bitcast(codes, self.words)
        eight = constant(self.words, 8)
        if kind.is_signed:
            return builder.ashr(builder.shl(words, eight), eight), builder.ashr(words, eight)
        return builder.and_(words, constant(self.words, 255)), builder.lshr(words, eight)

    def pairs(self, builder: ir.IRBuilder, weights: Value, quad: Value, kind: CodeRange) -> Value:
        """Multiply and add neighbours."""
        words, eight = builder.bitcast(quad, self.words), constant(self.words, 8)
        even = builder.ashr(builder.shl(words, eight), eight)
        odd = builder.ashr(words, eight)
        return builder.add(builder.mul(weights[0], even), builder.mul(weights[1], odd))

    def widen(self, builder: ir.IRBuilder, pairs: Value) -> Value:
        """Add neighbours."""
        integers, sixteen = builder.bitcast(pairs, self.integers), constant(self.integers, 16)
        even = builder.ashr(builder.shl(integers, sixteen), sixteen)
        return builder.add(even, builder.ashr(integers, sixteen))

    def halves(self, builder: ir.IRBuilder, base: Value) -> Value:
        """Load float16 numbers as float32, in integer arithmetic."""
        return widened_bits(builder, load(builder, base, vector(INT16, self.rows), 2))

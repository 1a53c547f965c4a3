"""Vectors of eight float32 lanes for kernels, built as LLVM IR.

Plain loops leave the width and the order of a sum to LLVM and the CPU. These operations fix both:
eight lanes everywhere (one AVX2 register, two NEON registers), fused multiply-adds, and one
summation tree. So a kernel written with them gives the same bits on x86 and arm64, without
`fastmath`. Offsets count elements of a one-dimensional C-contiguous float32 array and are not
checked: the wrappers do that.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 8

_FLOAT = ir.FloatType()
_INT32 = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_INTEGERS = ir.VectorType(_INT32, LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)


class Float32x8(types.Type):  # type: ignore[misc]
    """Numba's view of an LLVM vector of eight floats; lives inside kernels only."""

    def __init__(self) -> None:
        super().__init__(name="Float32x8")


float32x8 = Float32x8()


@register_model(Float32x8)
class _Float32x8Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _VECTOR)


def _constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [float(value)] * LANES)


def _integers(values: list[int]) -> ir.Constant:
    return ir.Constant(_INTEGERS, values)


def _call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: list[ir.Value]) -> Any:
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, arguments)


def _fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> Any:
    return _call(builder, "llvm.fma.v8f32", _VECTOR, [a, b, c])


def _shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes))


def _splat(builder: ir.IRBuilder, value: ir.Value) -> Any:
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_INT32, 0))
    return _shuffle(builder, single, undefined, [0] * LANES)


def _below(builder: ir.IRBuilder, count: ir.Value) -> Any:
    """Mask of the lanes whose index is below `count` (any int)."""
    lanes = ir.Constant(ir.VectorType(count.type, LANES), list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat(builder, count))


def _pointer(context: Any, builder: ir.IRBuilder, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    element = builder.gep(data, [offset])
    return builder.bitcast(element, _VECTOR.as_pointer())


def _is_flat(array: Any) -> bool:
    return (
        isinstance(array, types.Array)
        and array.dtype == types.float32
        and array.ndim == 1
        and array.layout == "C"
    )


@intrinsic
def load8(typingctx: Any, array: Any, offset: Any) -> Any:
    """Eight elements of `array` from `offset`."""
    if not _is_flat(array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, array, *arguments)
        return builder.load(pointer, align=4)

    return float32x8(array, types.intp), codegen


@intrinsic
def load_part(typingctx: Any, array: Any, offset: Any, count: Any) -> Any:
    """`count` (at most eight) elements of `array` from `offset`; the other lanes are 0."""
    if not _is_flat(array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, array, *arguments[:2])
        mask = _below(builder, arguments[2])
        name = "llvm.masked.load.v8f32.p0"
        alignment = ir.Constant(_INT32, 4)
        return _call(builder, name, _VECTOR, [pointer, alignment, mask, _constant(0.0)])

    return float32x8(array, types.intp, types.intp), codegen


@intrinsic
def store8(typingctx: Any, array: Any, offset: Any, vector: Any) -> Any:
    """Write the eight lanes to `array` from `offset`."""
    if not _is_flat(array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, array, *arguments[:2])
        builder.store(arguments[2], pointer, align=4)
        return context.get_dummy_value()

    return types.none(array, types.intp, float32x8), codegen


@intrinsic
def store_part(typingctx: Any, array: Any, offset: Any, count: Any, vector: Any) -> Any:
    """Write the first `count` (at most eight) lanes to `array` from `offset`."""
    if not _is_flat(array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, array, *arguments[:2])
        mask = _below(builder, arguments[2])
        alignment = ir.Constant(_INT32, 4)
        name = "llvm.masked.store.v8f32.p0"
        _call(builder, name, ir.VoidType(), [arguments[3], pointer, alignment, mask])
        return context.get_dummy_value()

    return types.none(array, types.intp, types.intp, float32x8), codegen


@intrinsic
def splat8(typingctx: Any, value: Any) -> Any:
    """Eight lanes of the same float32 value."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[0])

    return float32x8(types.float32), codegen


@intrinsic
def fma8(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c in each lane, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _fma(builder, *arguments)

    return float32x8(float32x8, float32x8, float32x8), codegen


@intrinsic
def add8(typingctx: Any, a: Any, b: Any) -> Any:
    """Add two vectors."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def sub8(typingctx: Any, a: Any, b: Any) -> Any:
    """Subtract b from a."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def max8(typingctx: Any, a: Any, b: Any) -> Any:
    """Larger of a and b in each lane; a where b is NaN."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a_value, b_value = arguments
        return builder.select(builder.fcmp_ordered(">", b_value, a_value), b_value, a_value)

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def mul8(typingctx: Any, a: Any, b: Any) -> Any:
    """Multiply two vectors."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments)

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def div8(typingctx: Any, a: Any, b: Any) -> Any:
    """Divide a by b."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments)

    return float32x8(float32x8, float32x8), codegen


def _tree(builder: ir.IRBuilder, vector: ir.Value, combine: Any) -> Any:
    """Fold eight lanes into one by halves: always (0,4)(1,5)(2,6)(3,7), then (0,2)(1,3), (0,1)."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    for half in (4, 2, 1):
        upper = list(range(half, 2 * half)) + [0] * (LANES - half)
        vector = combine(vector, _shuffle(builder, vector, undefined, upper))
    return builder.extract_element(vector, ir.Constant(_INT32, 0))


@intrinsic
def sum8(typingctx: Any, vector: Any) -> Any:
    """Sum of the eight lanes, a float32, always by the same tree."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _tree(builder, arguments[0], builder.fadd)

    return types.float32(float32x8), codegen


@intrinsic
def greatest8(typingctx: Any, vector: Any) -> Any:
    """Largest lane, a float32; lanes that are NaN may be passed over."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def larger(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", a, b), a, b)

        return _tree(builder, arguments[0], larger)

    return types.float32(float32x8), codegen


@intrinsic
def upper_half(typingctx: Any, vector: Any) -> Any:
    """Lanes 4 to 7 moved to lanes 0 to 3; the other lanes repeat them."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _shuffle(builder, arguments[0], arguments[0], [4, 5, 6, 7] * 2)

    return float32x8(float32x8), codegen


@intrinsic
def evens8(typingctx: Any, a: Any, b: Any) -> Any:
    """The even lanes of a, then those of b."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a_value, b_value = arguments
        return _shuffle(builder, a_value, b_value, list(range(0, 2 * LANES, 2)))

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def odds8(typingctx: Any, a: Any, b: Any) -> Any:
    """The odd lanes of a, then those of b."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a_value, b_value = arguments
        return _shuffle(builder, a_value, b_value, list(range(1, 2 * LANES, 2)))

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def zipped_low8(typingctx: Any, a: Any, b: Any) -> Any:
    """Lanes 0 to 3 of a and b in turn: a0, b0, a1, b1, ..."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a_value, b_value = arguments
        return _shuffle(builder, a_value, b_value, [0, 8, 1, 9, 2, 10, 3, 11])

    return float32x8(float32x8, float32x8), codegen


@intrinsic
def zipped_high8(typingctx: Any, a: Any, b: Any) -> Any:
    """Lanes 4 to 7 of a and b in turn: a4, b4, a5, b5, ..."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a_value, b_value = arguments
        return _shuffle(builder, a_value, b_value, [4, 12, 5, 13, 6, 14, 7, 15])

    return float32x8(float32x8, float32x8), codegen


_PAIRS = ([0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15])
_QUADS = ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
_HALVES = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])


@intrinsic
def sums_of_8(
    typingctx: Any, v0: Any, v1: Any, v2: Any, v3: Any, v4: Any, v5: Any, v6: Any, v7: Any
) -> Any:
    """Lane i of the result is the sum of all lanes of vector i.

    Every vector is summed by the same tree: (0,1)(2,3)(4,5)(6,7), then pairs, then halves.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vectors = list(arguments)
        for even, odd in (_PAIRS, _QUADS, _HALVES):
            vectors = [
                builder.fadd(_shuffle(builder, a, b, even), _shuffle(builder, a, b, odd))
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    return float32x8(*[float32x8] * LANES), codegen


@intrinsic
def transposed_8(
    typingctx: Any, v0: Any, v1: Any, v2: Any, v3: Any, v4: Any, v5: Any, v6: Any, v7: Any
) -> Any:
    """The 8 x 8 matrix with rows v0 to v7, transposed: a tuple of eight vectors."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows = list(arguments)
        for distance, (low, high) in ((1, _PAIRS), (2, _QUADS), (4, _HALVES)):
            rows = _swap_off_diagonal(builder, rows, distance, low, high)
        return context.make_tuple(builder, signature.return_type, rows)

    return types.UniTuple(float32x8, LANES)(*[float32x8] * LANES), codegen


def _swap_off_diagonal(
    builder: ir.IRBuilder, rows: list[Any], distance: int, low: list[int], high: list[int]
) -> list[Any]:
    """One step of a transposition: swap the off-diagonal squares of size `distance`."""
    swapped: list[Any] = [None] * LANES
    for row in range(LANES):
        if not row & distance:
            a, b = rows[row], rows[row + distance]
            swapped[row] = _shuffle(builder, a, b, low)
            swapped[row + distance] = _shuffle(builder, a, b, high)
    return swapped


# exp(x) = 2^n * exp(r) with n = round(x / ln 2) and |r| <= ln(2) / 2. ln 2 is split in two so that
# r is exact to about 2^-40; exp(r) is a polynomial fitted for float32 (Cephes, expf).
LOG2_E = 1.44269504088896341
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440e-4
EXP_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP_LARGEST = 88.72283172607422  # above it e^x is no float32
_EXP_SMALLEST = -103.97283935546875  # below it e^x rounds to 0


def _power_of_two(builder: ir.IRBuilder, exponent: ir.Value) -> Any:
    biased = builder.add(exponent, _integers([127] * LANES))
    return builder.bitcast(builder.shl(biased, _integers([23] * LANES)), _VECTOR)


def _exp(builder: ir.IRBuilder, x: ir.Value) -> Any:
    """IR of exp in each lane, within 2 units in the last place; NaN stays NaN."""
    too_large = builder.fcmp_ordered(">", x, _constant(_EXP_LARGEST))
    too_small = builder.fcmp_ordered("<", x, _constant(_EXP_SMALLEST))
    # The conversion to int needs a finite value: NaN and the ends are replaced here only.
    usable = builder.fcmp_ordered("<=", x, _constant(_EXP_LARGEST))
    bounded = builder.select(usable, x, _constant(0.0))
    bounded = builder.select(too_small, _constant(_EXP_SMALLEST), bounded)
    product = builder.fmul(bounded, _constant(LOG2_E))
    whole = _call(builder, "llvm.roundeven.v8f32", _VECTOR, [product])
    n = builder.fptosi(whole, _INTEGERS)
    r = _fma(builder, whole, _constant(-LN2_HIGH), bounded)
    r = _fma(builder, whole, _constant(-LN2_LOW), r)
    p = _constant(EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = _fma(builder, p, r, _constant(coefficient))
    p = _fma(builder, p, builder.fmul(r, r), builder.fadd(r, _constant(1.0)))
    # Two factors, since 2^n alone leaves the range of float32 at both ends.
    half = builder.ashr(n, _integers([1] * LANES))
    p = builder.fmul(p, _power_of_two(builder, half))
    p = builder.fmul(p, _power_of_two(builder, builder.sub(n, half)))
    p = builder.select(too_small, _constant(0.0), p)
    p = builder.select(too_large, _constant(float("inf")), p)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, p)


@intrinsic
def exp8(typingctx: Any, vector: Any) -> Any:
    """e^x in each lane, within 2 units in the last place; NaN stays NaN."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _exp(builder, arguments[0])

    return float32x8(float32x8), codegen

"""LLVM IR that every instruction set shares: vectors, memory, loops.

All functions write at the builder's position. Memory is a pointer to bytes plus an offset in
bytes; nothing is checked.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

INT1 = ir.IntType(1)
INT8 = ir.IntType(8)
INT16 = ir.IntType(16)
INT32 = ir.IntType(32)
INT64 = ir.IntType(64)
HALF = ir.HalfType()
FLOAT = ir.FloatType()

Value = Any
Body = Callable[[Value, list[Value]], list[Value]]
"""What a loop does: ``state = body(index, state)``."""


def vector(element: ir.Type, lanes: int) -> ir.VectorType:
    """Type of a vector."""
    return ir.VectorType(element, lanes)


def constant(kind: ir.VectorType, value: float) -> ir.Constant:
    """Vector with the same number in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[Value]) -> Value:
    """Call an LLVM intrinsic by its full name."""
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, name)
    return builder.call(function, arguments)


def fma(builder: ir.IRBuilder, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c`` in float32 lanes, rounded once."""
    return call(builder, f"llvm.fma.v{a.type.count}f32", a.type, [a, b, c])


def to_float(builder: ir.IRBuilder, integers: Value) -> Value:
    """Signed integer lanes as float32."""
    return builder.sitofp(integers, vector(FLOAT, integers.type.count))


def lane(builder: ir.IRBuilder, source: Value, index: int, lanes: int) -> Value:
    """One lane of a vector in all lanes of another."""
    undefined = ir.Constant(source.type, ir.Undefined)
    return builder.shuffle_vector(source, undefined, constant(vector(INT32, lanes), index))


def splat(builder: ir.IRBuilder, value: Value, lanes: int) -> Value:
    """A number in all lanes of a vector."""
    undefined = ir.Constant(vector(value.type, lanes), ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    return lane(builder, single, 0, lanes)


def pointer(builder: ir.IRBuilder, address: Value) -> Value:
    """Pointer to the byte at an int64 address."""
    return builder.inttoptr(address, INT8.as_pointer())


def at(builder: ir.IRBuilder, base: Value, offset: Value) -> Value:
    """Pointer to the byte `offset` (int or int64 value) bytes behind `base`."""
    if isinstance(offset, int):
        offset = ir.Constant(INT64, offset)
    return builder.gep(base, [offset])


def load(builder: ir.IRBuilder, base: Value, kind: ir.Type, align: int) -> Value:
    """Value of a type in memory, aligned to `align` bytes."""
    return builder.load(builder.bitcast(base, kind.as_pointer()), align=align)


def store(builder: ir.IRBuilder, value: Value, base: Value, align: int) -> None:
    """Write a value to memory, aligned to `align` bytes."""
    builder.store(value, builder.bitcast(base, value.type.as_pointer()), align=align)


def load_splat(builder: ir.IRBuilder, base: Value, kind: ir.Type, lanes: int) -> Value:
    """A 32-bit number in memory, in all lanes of a vector."""
    return splat(builder, load(builder, base, kind, 4), lanes)


def prefetch(builder: ir.IRBuilder, base: Value) -> None:
    """Have a cache line fetched into the second-level cache; any address will do, valid or not."""
    hints = [ir.Constant(INT32, hint) for hint in (0, 2, 1)]  # to read, second level, data
    call(builder, "llvm.prefetch.p0", ir.VoidType(), [base, *hints])


def times(builder: ir.IRBuilder, count: Value, factor: int) -> Value:
    """An int64 value times a constant."""
    return builder.mul(count, ir.Constant(INT64, factor))


def loop(
    builder: ir.IRBuilder,
    count: Value,
    state: list[Value],
    body: Body,
) -> list[Value]:
    """Call ``state = body(index, state)`` for index 0 to count - 1 and give the last state.

    Args:
        builder: stands behind the loop afterwards.
        count: int64 value, at least 1: the body runs before the count is looked at.
        state: values that go from turn to turn, in registers.
        body: writes one turn.
    """
    before = builder.block
    turn = builder.append_basic_block("turn")
    builder.branch(turn)
    builder.position_at_end(turn)
    index = builder.phi(INT64)
    variables = [builder.phi(value.type) for value in state]
    results = body(index, variables)
    following = builder.add(index, ir.Constant(INT64, 1))
    end = builder.block
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed("<", following, count), turn, after)
    for variable, first, result in zip(
        [index, *variables], [ir.Constant(INT64, 0), *state], [following, *results], strict=True
    ):
        variable.add_incoming(first, before)
        variable.add_incoming(result, end)
    builder.position_at_end(after)
    return results


def loop_until(
    builder: ir.IRBuilder,
    end: Value,
    state: list[Value],
    body: Callable[[list[Value]], list[Value]],
) -> None:
    """Do ``state = body(state)`` until its first value, a pointer, is `end`; at least once.

    LLVM does not see how often that is, and so does not unroll the loop.
    """
    before = builder.block
    turn = builder.append_basic_block("turn")
    builder.branch(turn)
    builder.position_at_end(turn)
    variables = [builder.phi(value.type) for value in state]
    results = body(variables)
    last = builder.block
    after = builder.append_basic_block("after")
    builder.cbranch(builder.icmp_unsigned("==", results[0], end), after, turn)
    for variable, first, result in zip(variables, state, results, strict=True):
        variable.add_incoming(first, before)
        variable.add_incoming(result, last)
    builder.position_at_end(after)


def fixed(builder: ir.IRBuilder, value: Value, register: str) -> Value:
    """Have a value computed here and now, before all that is loaded further down.

    An assembly of no instruction that LLVM must not look into. Without it LLVM loads a whole
    block's activations first and has no registers left for them.

    Args:
        builder: writes here.
        value: a vector.
        register: the target's letter for vector registers, as in inline assembly.
    """
    function_type = ir.FunctionType(value.type, [value.type])
    constraint = f"={register},0,~{{memory}}"
    return builder.call(ir.InlineAsm(function_type, "", constraint, side_effect=True), [value])

"""Writing float32 numbers to memory as they are stored there: float32 or float16."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .half import StoredFloats, stored_floats
from .isa_ir import FLOAT, INT32, Value, at, load, pointer, store, times, vector
from .jit import kernel
from .widen import in_vectors


@kernel
def narrow(source: int, target: int, count: int, is_half: int) -> None:
    """Copy `count` float32 numbers from one address to another, as float32 or float16."""
    if is_half != 0:
        _narrow(source, target, count, 1)
    else:
        _narrow(source, target, count, 0)


@kernel
def scatter(source: int, target: int, step: int, count: int, is_half: int) -> None:
    """The same with `step` bytes from a number to the next in the target."""
    if is_half != 0:
        _scatter(source, target, step, count, 1)
    else:
        _scatter(source, target, step, count, 0)


@intrinsic(prefer_literal=True)
def _narrow(typingctx: Any, source: Any, target: Any, count: Any, is_half: Any) -> Any:
    stored = stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, goal, total, _ = arguments
        base = pointer(builder, goal)

        def put(index: Value, values: Value) -> None:
            store(builder, values, at(builder, base, times(builder, index, stored.bytes)), 2)

        emit_vectors(builder, stored, start, total, put)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, is_half), codegen


@intrinsic(prefer_literal=True)
def _scatter(typingctx: Any, source: Any, target: Any, step: Any, count: Any, is_half: Any) -> Any:
    stored = stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, goal, distance, total, _ = arguments
        base = pointer(builder, goal)

        def put(index: Value, values: Value) -> None:
            place = at(builder, base, builder.mul(index, distance))
            for lane in range(values.type.count):
                number = builder.extract_element(values, ir.Constant(INT32, lane))
                store(builder, number, place, 2)
                place = at(builder, place, distance)

        emit_vectors(builder, stored, start, total, put)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 4, is_half), codegen


def emit_vectors(
    builder: ir.IRBuilder, stored: StoredFloats, source: Value, count: Value, put: Any
) -> None:
    """IR that calls put(index of the first, vector of stored numbers) until all are put."""
    for width, index in in_vectors(builder, count):
        place = at(builder, pointer(builder, source), times(builder, index, 4))
        values = load(builder, place, vector(FLOAT, width), 4)
        put(index, stored.converted(builder, values))

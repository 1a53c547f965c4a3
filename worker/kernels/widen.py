"""Copying stored numbers to float32."""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .half import StoredFloats, stored_floats
from .isa_ir import INT64, Value, at, pointer, store, times
from .jit import kernel

_WIDTHS = (16, 1)


@kernel
def widen(
    source: int, source_step: int, target: int, target_step: int, rows: int, count: int,
    is_half: int,
) -> None:  # fmt: skip
    """Copy rows of `count` numbers, float32 or float16, from one address to another as float32.

    The steps are the bytes from a row to the next.
    """
    if is_half != 0:
        _widen(source, source_step, target, target_step, rows, count, 1)
    else:
        _widen(source, source_step, target, target_step, rows, count, 0)


@intrinsic(prefer_literal=True)
def _widen(
    typingctx: Any, source: Any, source_step: Any, target: Any, target_step: Any, rows: Any,
    count: Any, is_half: Any,
) -> Any:  # fmt: skip
    stored = stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, start_step, goal, goal_step, lines, numbers, _ = arguments
        with cgutils.for_range(builder, lines, intp=INT64) as line:
            here = builder.add(start, builder.mul(line.index, start_step))
            there = builder.add(goal, builder.mul(line.index, goal_step))
            emit_widen(builder, stored, here, there, numbers)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 6, is_half), codegen


def emit_widen(
    builder: ir.IRBuilder, stored: StoredFloats, source: Value, target: Value, count: Value
) -> None:
    """IR that copies in vectors, and what is left over number by number."""
    for width, index in in_vectors(builder, count):
        place = at(builder, pointer(builder, source), times(builder, index, stored.bytes))
        goal = at(builder, pointer(builder, target), times(builder, index, 4))
        store(builder, stored.load(builder, place, width), goal, 4)


def in_vectors(builder: ir.IRBuilder, count: Value) -> Iterator[tuple[int, Value]]:
    """IR loops over `count` numbers: their body is written once for vectors, once for the rest.

    Yields:
        The width of the vector, and the index of its first number.
    """
    done: Value = ir.Constant(INT64, 0)
    for width in _WIDTHS:
        turns = builder.udiv(builder.sub(count, done), ir.Constant(INT64, width))
        with cgutils.for_range(builder, turns, intp=INT64) as turn:
            yield width, builder.add(done, times(builder, turn.index, width))
        done = builder.add(done, times(builder, turns, width))

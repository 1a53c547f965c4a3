"""Copying stored numbers to float32."""

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
def widen(source: int, target: int, count: int, is_half: int) -> None:
    """Copy `count` numbers, float32 or float16, from one address to another as float32."""
    if is_half != 0:
        _widen(source, target, count, 1)
    else:
        _widen(source, target, count, 0)


@intrinsic(prefer_literal=True)
def _widen(typingctx: Any, source: Any, target: Any, count: Any, is_half: Any) -> Any:
    stored = stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit_widen(builder, stored, *arguments[:3])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64, is_half), codegen


def emit_widen(
    builder: ir.IRBuilder, stored: StoredFloats, source: Value, target: Value, count: Value
) -> None:
    """IR that copies in vectors, and what is left over number by number."""
    done: Value = ir.Constant(INT64, 0)
    for width in _WIDTHS:
        turns = builder.udiv(builder.sub(count, done), ir.Constant(INT64, width))
        with cgutils.for_range(builder, turns, intp=INT64) as turn:
            index = builder.add(done, times(builder, turn.index, width))
            place = at(builder, pointer(builder, source), times(builder, index, stored.bytes))
            goal = at(builder, pointer(builder, target), times(builder, index, 4))
            store(builder, stored.load(builder, place, width), goal, 4)
        done = builder.add(done, times(builder, turns, width))

"""Single numbers in memory, by address: cheaper to compile than views as arrays.

An element is named by the address of the first one and its index; nothing is checked.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_INT32 = ir.IntType(32)
_INT64 = ir.IntType(64)


def _element(builder: ir.IRBuilder, kind: ir.Type, address: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(address, kind.as_pointer()), [index])


@intrinsic
def int32_at(typingctx: Any, address: Any, index: Any) -> Any:
    """An element of int32 numbers, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.load(_element(builder, _INT32, *arguments), align=4)
        return builder.sext(value, _INT64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def put_word(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Write an element of int64 numbers."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _element(builder, _INT64, *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def load_acquire(typingctx: Any, address: Any, index: Any) -> Any:
    """Read an element of int64 numbers that other threads write, and all they wrote before it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_element(builder, _INT64, *arguments), "acquire", 8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store_release(typingctx: Any, address: Any, index: Any, value: Any) -> Any:
    """Write an element of int64 numbers that other threads read, after all written before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _element(builder, _INT64, *arguments[:2])
        builder.store_atomic(arguments[2], place, "release", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def count_up(typingctx: Any, address: Any, index: Any) -> Any:
    """Add 1 to an element of int64 numbers that threads share; gives what it was before.

    What a thread wrote before it counted is seen by those that count after it.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _element(builder, _INT64, *arguments)
        return builder.atomic_rmw("add", place, ir.Constant(_INT64, 1), "acq_rel")

    return types.int64(types.int64, types.int64), codegen

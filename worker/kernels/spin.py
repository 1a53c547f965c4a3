"""Waiting for a word in memory without the GIL: what the thread team sleeps on when work is near.

A wait is bounded: first the core is paused in place, then it is offered to other threads
(`sched_yield`), then the wait gives up, and the caller parks on a condition variable. So a busy
machine slows the team down softly.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import kernel
from .memory import load_acquire

_INT32 = ir.IntType(32)


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the core that it spins; a CPU without such a hint does nothing."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        triple = builder.module.triple
        if triple.startswith("x86_64"):
            pause = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            )
            builder.call(pause, [])
        elif triple.startswith(("arm64", "aarch64")):
            hint = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), [_INT32]), "llvm.aarch64.hint"
            )
            builder.call(hint, [ir.Constant(_INT32, 1)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _offer_core(typingctx: Any) -> Any:
    """sched_yield: let another thread have the core."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(_INT32, [])
        builder.call(
            cgutils.get_or_insert_function(builder.module, function_type, "sched_yield"), []
        )
        return context.get_dummy_value()

    return types.void(), codegen


@kernel
def wait_for_change(words: int, index: int, seen: int, pauses: int, yields: int) -> bool:
    """Wait until a word differs from `seen`; False when the bound was reached first.

    Args:
        words: address of int64 words shared between threads.
        index: of the word to watch.
        seen: the value it has now.
        pauses: looks at the word with a pause between.
        yields: further looks with the core offered between.
    """
    for _ in range(pauses):
        if load_acquire(words, index) != seen:
            return True
        pause()
    for _ in range(yields):
        if load_acquire(words, index) != seen:
            return True
        _offer_core()
    return False

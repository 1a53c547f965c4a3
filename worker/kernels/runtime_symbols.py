"""Numba's own functions, which machine code from the cache may call."""

from functools import cache

import llvmlite.binding as llvm
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python


@cache
def provide_runtime_symbols() -> None:
    """Let LLVM find Numba's functions; calling one that it cannot find ends the process.

    Numba does the same before it compiles (`numba.core.runtime.nrt`), and compiles some of its own
    functions then, which takes longer than to load a kernel.
    """
    _ = cpu_target.target_context  # knows those that have to do with Python
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)

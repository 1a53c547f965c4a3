"""Machine code of C functions: compiled by Numba once, loaded by LLVM alone in later processes.

Loading goes past Numba: it takes a tenth of the time, of which a step's many functions make much.
"""

import json
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba import types
from numba.core.ccallback import CFunc

from .code_cache import CODE_CACHE
from .function_key import function_key
from .jit import JIT_OPTIONS
from .runtime_symbols import provide_runtime_symbols

_ENGINES: list[Any] = []
"""They own the code in memory, which stays to the end of the process."""


def native_address(function: Callable[..., None], arguments: int) -> int:
    """Load or compile ``void function(int64, ...)`` and tell where it begins."""
    name = function_key(function, "native", arguments)
    with CODE_CACHE.turn():
        code = CODE_CACHE.find(name)
        if code is None:
            code = _compile(function, arguments)
            CODE_CACHE.keep(name, code)
        return _load(code)


def _compile(function: Callable[..., None], arguments: int) -> bytes:
    """Compile to a line of JSON, with the symbol and those that it needs, and an object file."""
    signature = ((types.int64,) * arguments, types.void)
    compiled: Any = CFunc(function, signature, locals={}, options=dict(JIT_OPTIONS))
    compiled.compile()
    library = compiled._library
    assert not library.has_dynamic_globals, f"{function.__qualname__} holds addresses"
    head = {"entry": compiled.native_name, "needs": _undefined(library._final_module)}
    object_code: bytes = library._get_compiled_object()
    return json.dumps(head).encode() + b"\n" + object_code


def _undefined(module: Any) -> list[str]:
    """Names of functions and variables that are elsewhere; LLVM's own operations are not."""
    symbols = (*module.functions, *module.global_variables)
    names = [symbol.name for symbol in symbols if symbol.is_declaration]
    return [name for name in names if not name.startswith("llvm.")]


def _load(code: bytes) -> int:
    head, _, object_code = code.partition(b"\n")
    symbols = json.loads(head)
    provide_runtime_symbols()
    unknown = [name for name in symbols["needs"] if llvm.address_of_symbol(name) is None]
    assert not unknown, f"{symbols['entry']} calls {unknown}"  # LLVM would end the process
    # An engine for each: equal names of different functions, from different processes, never meet.
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, _target().create_target_machine())
    engine.remove_module(empty)  # it would be compiled
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return int(engine.get_function_address(symbols["entry"]))


def _target() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()

"""The one way to compile a kernel: fixed JIT options and the code cache."""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from numba.core import config
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from .code_cache import CODE_CACHE, kernel_cache_folder
from .function_key import function_key
from .runtime_symbols import provide_runtime_symbols

F = TypeVar("F", bound=Callable[..., Any])

# fastmath stays off: it reorders sums. Kernels get their speed from the fixed-width vectors of
# vector.py, whose order of operations is the same on every machine.
JIT_OPTIONS = {"nogil": True, "error_model": "numpy"}


def kernel(function: F) -> F:
    """Compile `function` with Numba under the project's options, cached on disk.

    Args:
        function: A module-level function of arrays and numbers in this package.

    Returns:
        The compiled function; it releases the GIL while it runs.
    """
    # Numba tells functions of one name apart by numbers that are another process's in cached code.
    assert function.__closure__ is None, f"{function.__qualname__} is no module-level function"
    if config.DISABLE_JIT:
        return function
    compiled: F = Kernel(function)
    return compiled


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A function that Numba compiles for the types it is called with, once for all processes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # Nobody calls it as a C function; `Native` is for that.
        options = {"nopython": True, "no_cfunc_wrapper": True, **JIT_OPTIONS}
        super().__init__(function, targetoptions=options)
        self._cache = KernelCache(function)

    def compile(self, sig: Any) -> Any:
        """Load or compile the function for some types."""
        with CODE_CACHE.turn():
            return super().compile(sig)


class KernelCache(NullCache):  # type: ignore[misc]
    """The code cache as Numba asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @property
    def cache_path(self) -> str:
        """The folder, as Numba's statistics show it."""
        return str(kernel_cache_folder())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Give the compiled function for some types, or None."""
        code = CODE_CACHE.find(self._name(sig))
        if code is None:
            return None
        # Not target_context.refresh(), which readies Numba for compiling and takes a while.
        provide_runtime_symbols()
        return CompileResult._rebuild(target_context, *pickle.loads(code))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled."""
        assert not data.library.has_dynamic_globals, f"{self._function} holds addresses"
        CODE_CACHE.keep(self._name(sig), dumps(data._reduce()))

    def _name(self, sig: Any) -> str:
        return function_key(self._function, normalize_signature(sig)[0])

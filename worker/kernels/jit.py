"""The one way to compile a kernel: fixed JIT options and a cache on disk keyed by content.

Numba's own cache is keyed by the folder of the source file, and Ray unpacks every upload to a
new folder. Ours is a folder named by a hash of everything that shapes the machine code: all
kernel sources, the versions of Numba and llvmlite, and the CPU with its features. Editing a file
that holds no kernel changes nothing.
"""

import hashlib
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from worker.cache_folder import cache_folder

F = TypeVar("F", bound=Callable[..., Any])

# fastmath stays off: it reorders sums. Kernels get their speed from the fixed-width vectors of
# vector.py, whose order of operations is the same on every machine.
JIT_OPTIONS = {"nogil": True, "error_model": "numpy"}
KERNEL_FOLDER = Path(__file__).resolve().parent


def kernel(function: F) -> F:
    """Compile `function` with Numba under the project's options, cached on disk.

    Args:
        function: A module-level function of arrays and numbers in this package.

    Returns:
        The compiled function; it releases the GIL while it runs.
    """
    dispatcher = numba.njit(**JIT_OPTIONS)(function)
    if isinstance(dispatcher, numba.core.registry.CPUDispatcher):
        dispatcher._cache = KernelCache(function)
    compiled: F = dispatcher
    return compiled


@cache
def kernel_cache_name() -> str:
    """Name of the folder that holds this content's machine code: 20 hexadecimal digits."""
    digest = hashlib.sha256()
    for source in sorted(KERNEL_FOLDER.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    cpu = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    for word in (numba.__version__, llvmlite.__version__, cpu, features):
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:20]


class _ContentLocator(_CacheLocator):  # type: ignore[misc]
    """Places the machine code of a kernel in the folder named by content."""

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_ContentLocator":
        """Locator of one kernel; the folder of `py_file` plays no part."""
        return cls(f"{Path(py_file).stem}.{py_func.__code__.co_firstlineno}")

    def get_cache_path(self) -> str:
        """Folder of the machine code."""
        return str(cache_folder() / "kernels" / kernel_cache_name())

    def get_source_stamp(self) -> str:
        """Freshness: the folder's name already says it."""
        return kernel_cache_name()

    def get_disambiguator(self) -> str:
        """Tells functions of equal names apart."""
        return self._name


class _KernelCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_ContentLocator,)


class KernelCache(FunctionCache):  # type: ignore[misc]
    """Numba's function cache, where an unusable folder costs compile time and no failure."""

    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
            _warn_no_cache(self.cache_path, str(error))
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_no_cache(self.cache_path, str(error))


def _warn_no_cache(folder: str, reason: str) -> None:
    """Say once that kernels are compiled anew in every process."""
    if folder in _warned:
        return
    _warned.add(folder)
    warnings.warn(
        f"kernel cache {folder} cannot be used ({reason}): kernels are compiled again in every "
        "process; set TOKENMILL_CACHE to a folder that can be written",
        RuntimeWarning,
        stacklevel=4,
    )


_warned: set[str] = set()

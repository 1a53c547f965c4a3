"""Machine code of kernels on disk, shared by all processes of a machine and named by content.

Numba's own cache is keyed by the folder of the source file, and Ray unpacks every upload to a
new folder. Ours is a folder named by a hash of everything that shapes the machine code: all
kernel sources, the versions of Python, Numba and llvmlite, and the CPU with its features. Editing a
file that holds no kernel changes nothing.

One process compiles at a time; the others wait for it and load what it has compiled.
"""

import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding
import numba
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock

from worker.cache_folder import cache_folder
from worker.checked_file import read_checked, write_checked
from worker.file_lock import file_lock

KERNEL_FOLDER = Path(__file__).resolve().parent


@cache
def kernel_cache_name() -> str:
    """Name of the folder that holds this content's machine code: 20 hexadecimal digits."""
    digest = hashlib.sha256()
    for source in sorted(KERNEL_FOLDER.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    for word in _compiler():
        digest.update(str(word).encode() + b"\0")
    return digest.hexdigest()[:20]


def _compiler() -> tuple[object, ...]:
    """What else shapes machine code: versions, the CPU, settings of Numba's environment."""
    cpu = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    versions = (sys.version_info[:2], numba.__version__, llvmlite.__version__)
    settings = (config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE, config.BOUNDSCHECK)
    return (*versions, llvmlite.binding.get_process_triple(), cpu, features, *settings)


@cache
def kernel_cache_folder() -> Path:
    """Where the machine code of these sources lies, to the end of the process; it may not exist."""
    return cache_folder() / "kernels" / kernel_cache_name()


class CodeCache:
    """Machine code by name, in a folder. A folder that cannot be used costs compile time only.

    Attributes:
        compiled: kernels that this process has compiled.
        loaded: kernels that it has found compiled.
        problem: why the folder could not be used; None as long as it could.
    """

    compiled: int
    loaded: int
    problem: str | None

    def __init__(self, folder: Callable[[], Path]) -> None:
        """Take the folder, asked for anew each time."""
        self.compiled = 0
        self.loaded = 0
        self.problem = None
        self._folder = folder
        self._depth = 0
        self._lock = ExitStack()
        self._has_turn = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Go around looking for a kernel, compiling it if need be, and keeping it.

        One thread is in there at a time (Numba's own lock, which it takes anyway). Kernels that
        are compiled on the way may be nested.
        """
        with global_compiler_lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._has_turn = False
                    self._lock.close()

    def find(self, name: str) -> bytes | None:
        """Give the code of that name; None when it is for the caller to compile.

        A process that has got a None holds the others' compilations up until its `turn` ends.
        """
        assert self._depth > 0, f"{name} is looked for outside of a turn"
        code = self._read(name)
        if code is None and not self._has_turn:
            self._take_turn()
            code = self._read(name)  # another process may have compiled it meanwhile
        self.loaded += code is not None
        return code

    def keep(self, name: str, code: bytes) -> None:
        """Keep the code of a kernel that was just compiled."""
        self.compiled += 1
        try:
            write_checked(self._folder() / name, code)
        except OSError as error:
            self._warn(str(error))

    def _read(self, name: str) -> bytes | None:
        try:
            return read_checked(self._folder() / name)
        except OSError as error:
            self._warn(str(error))
            return None

    def _take_turn(self) -> None:
        self._has_turn = True
        try:
            self._lock.enter_context(file_lock(self._folder() / ".lock", "to compile kernels"))
        except OSError as error:
            self._warn(str(error))

    def _warn(self, reason: str) -> None:
        """Say once that kernels are compiled anew in every process."""
        if self.problem is not None:
            return
        self.problem = reason
        warnings.warn(
            f"kernel cache {self._folder()} cannot be used ({reason}): kernels are compiled again "
            "in every process; set TOKENMILL_CACHE to a folder that can be written",
            RuntimeWarning,
            stacklevel=4,
        )


CODE_CACHE = CodeCache(kernel_cache_folder)
"""The machine code of this process's kernels."""

"""Names of functions that are the same in every process and change with what they compile to."""

import hashlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_KERNEL_PACKAGE = __name__.rpartition(".")[0]


def function_key(function: Callable[..., Any], *details: object) -> str:
    """Name a function for the code cache: its module and name, and a hash.

    The sources of the kernel package are in the cache folder's name already; a function of another
    file (a test's) has its source in the hash.

    Args:
        function: a Python function; its closure may hold plain values, functions and kernels.
        details: what else its machine code depends on, such as argument types.

    Raises:
        TypeError: its closure holds anything else.
    """
    words = [*_words(function), *map(str, details)]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:20]
    module = function.__module__.rpartition(".")[2]
    return f"{module}.{function.__name__}-{digest}"


def _words(function: Callable[..., Any]) -> Iterator[str]:
    code = function.__code__
    yield f"{function.__module__}.{function.__qualname__}:{code.co_firstlineno}"
    if not function.__module__.startswith(f"{_KERNEL_PACKAGE}."):
        yield _source(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield name
        yield from _value_words(cell.cell_contents, f"{function.__qualname__}: {name}")


def _source(code: types.CodeType) -> str:
    """The file of a function, or what there is of one that was typed in."""
    file = Path(code.co_filename)
    return file.read_text() if file.is_file() else repr((code.co_code, code.co_consts))


def _value_words(value: object, place: str) -> Iterator[str]:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        yield repr(value)
    elif isinstance(value, tuple):
        yield f"tuple of {len(value)}"
        for index, item in enumerate(value):
            yield from _value_words(item, f"{place}[{index}]")
    elif (function := _function_of(value)) is not None:
        yield from _words(function)
    else:
        raise TypeError(
            f"{place} is a {type(value).__name__}; a kernel's closure may hold numbers, text, "
            "tuples of them and functions"
        )


def _function_of(value: object) -> Callable[..., Any] | None:
    """The Python function behind a function, a kernel, a Native or an intrinsic."""
    for holder in ("py_func", "python_function", "_defn"):
        value = getattr(value, holder, value)
    return value if isinstance(value, types.FunctionType) else None

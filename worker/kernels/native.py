"""Kernels that compiled code calls by address, and the memory that reaches them as addresses.

A step of a decoder runs hundreds of kernels in a row; handing each its arrays through Python would
cost more than the kernels. Such a kernel takes 64-bit integers only: addresses, sizes and indices.
Whoever builds its arguments checks them and keeps the memory alive.
"""

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .jit import kernel
from .native_code import native_address

_INT64 = ir.IntType(64)


class Native:
    """A kernel with a C calling convention: ``void kernel(int64, ...)``.

    Compiled (or taken from the kernel cache) when its address is first asked for.

    Attributes:
        name: of the Python function.
        python_function: what is compiled.
    """

    name: str
    python_function: Callable[..., None]

    def __init__(self, function: Callable[..., None], arguments: int) -> None:
        self.name = function.__name__
        self.python_function = function
        self._arguments = arguments

    @cached_property
    def address(self) -> int:
        """Where the machine code begins; valid for the life of the process."""
        return native_address(self.python_function, self._arguments)

    @cached_property
    def _callable(self) -> Callable[..., None]:
        return ctypes.CFUNCTYPE(None, *(ctypes.c_int64,) * self._arguments)(self.address)

    def __call__(self, *arguments: int) -> None:
        """Call it from Python; the GIL is released meanwhile."""
        assert len(arguments) == self._arguments, (arguments, self._arguments)
        self._callable(*map(int, arguments))


def task(function: Callable[[int, int, int, int], None]) -> Native:
    """Compile a step's task ``function(header, arguments, item, thread)``, see `program`."""
    return Native(function, 4)


def address_of(array: NDArray[Any]) -> int:
    """Address of the first element of a C-contiguous array, which the caller keeps alive."""
    assert array.flags.c_contiguous, f"an array with strides {array.strides} is not contiguous"
    return int(array.__array_interface__["data"][0])


@intrinsic
def word(typingctx: Any, address: Any, index: Any) -> Any:
    """Element `index` of the int64 values at `address`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base = builder.inttoptr(arguments[0], _INT64.as_pointer())
        return builder.load(builder.gep(base, [arguments[1]]), align=8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _void_pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@kernel
def float32s(address: int, count: int) -> Any:
    """View `count` float32 values at an address as an array [count]."""
    return carray(_void_pointer(address), (count,), np.float32)


@kernel
def float64s(address: int, count: int) -> Any:
    """View `count` float64 values at an address as an array [count]."""
    return carray(_void_pointer(address), (count,), np.float64)


@kernel
def int32s(address: int, count: int) -> Any:
    """View `count` int32 values at an address as an array [count]."""
    return carray(_void_pointer(address), (count,), np.int32)


@kernel
def int64s(address: int, count: int) -> Any:
    """View `count` int64 values at an address as an array [count]."""
    return carray(_void_pointer(address), (count,), np.int64)


@kernel
def uint8s(address: int, count: int) -> Any:
    """View `count` bytes at an address as an array [count]."""
    return carray(_void_pointer(address), (count,), np.uint8)


@intrinsic
def call_native(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at `address` with a tuple of int64 values."""
    if not isinstance(arguments, types.UniTuple) or arguments.dtype != types.int64:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        count = arguments.count
        function_type = ir.FunctionType(ir.VoidType(), [_INT64] * count)
        function = builder.inttoptr(values[0], function_type.as_pointer())
        builder.call(function, [builder.extract_value(values[1], i) for i in range(count)])
        return context.get_dummy_value()

    return types.none(types.int64, arguments), codegen


@kernel
def real(address: int, index: int) -> np.float32:
    """Element `index` of the int64 words at `address`, which holds the bits of a float32."""
    return np.uint32(word(address, index)).view(np.float32)


def real_word(value: float | np.float32) -> int:
    """The word that `real` reads as that float32 value."""
    return int(np.float32(value).view(np.uint32))

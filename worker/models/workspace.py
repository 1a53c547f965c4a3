"""Scratch memory that a step's intermediates live in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.kernels.native import address_of
from worker.kernels.quantize import record_bytes


@dataclass(frozen=True, slots=True)
class Memory:
    """Rows at a fixed place, as many as the largest step has tokens.

    Attributes:
        array: float32 [capacity, width], or records as uint8 [capacity, bytes]; C-contiguous.
        width: values of a row.
    """

    array: NDArray[Any]
    width: int

    @property
    def address(self) -> int:
        """Of the first row."""
        return address_of(self.array)

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return int(self.array.strides[0])


class Workspace:
    """Named memory. A name gives the same memory each time, for all layers and all steps.

    The operating system gives it memory page by page, when a row is first written.
    """

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, int, int], NDArray[Any]] = {}

    def floats(self, name: str, rows: int, width: int) -> Memory:
        """Uninitialised float32 rows."""
        return Memory(self._array(name, rows, width, np.float32), width)

    def records(self, name: str, rows: int, width: int) -> Memory:
        """Uninitialised quantised rows, see `kernels.quantize`."""
        return Memory(self._array(f"{name} records", rows, record_bytes(width), np.uint8), width)

    def _array(self, name: str, rows: int, columns: int, dtype: type[np.generic]) -> NDArray[Any]:
        key = name, rows, columns
        if key not in self._arrays:
            self._arrays[key] = np.empty((rows, columns), dtype)
        return self._arrays[key]

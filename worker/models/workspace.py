"""Scratch memory that a step's intermediates live in."""

import numpy as np
from numpy.typing import NDArray


class Workspace:
    """Named float32 buffers that grow to the largest step seen and are then used again.

    So a step allocates nothing that grows with the model. An array is valid until the same name is
    asked for again.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.float32]] = {}

    def array(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        """An uninitialised array [rows, columns], C-contiguous."""
        size = rows * columns
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, np.float32)
        return buffer[:size].reshape(rows, columns)

"""How the tensors of a checkpoint are read so that they come out as GGUF has them.

Each `Reading` is a matrix (or a stack of matrices) whose rows are made when they are asked for, so
that nothing is held twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from worker.gguf import dequantize
from worker.gguf.mapped_file import MappedFile
from worker.gguf.quant_types import row_bytes

from .safetensors_header import StoredInfo

Shape = tuple[int, ...]
Bytes = NDArray[np.uint8]

QTYPES = {name: GGMLQuantizationType[name] for name in ("F32", "F16", "BF16")}
"""Types of safetensors that are read, as GGUF calls them."""


class Reading(Protocol):
    """A tensor as the models see it."""

    @property
    def shape(self) -> Shape:
        """Slowest dimension first."""

    @property
    def qtype(self) -> GGMLQuantizationType:
        """How its values are stored."""

    def rows(self, first: int, last: int) -> Bytes:
        """Rows first to last, slower dimensions flattened: uint8 [last - first, row bytes]."""

    def release(self) -> None:
        """Give its pages back to the system."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as it is in the file."""

    file: MappedFile
    info: StoredInfo

    @property
    def shape(self) -> Shape:
        """Of the file."""
        return self.info.shape or (1,)

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Of the file; its dtype is one of `QTYPES`."""
        return QTYPES[self.info.dtype]

    def rows(self, first: int, last: int) -> Bytes:
        """A view of the map."""
        self.file.check_unchanged()
        n_bytes = row_bytes(self.shape[-1], self.qtype)
        start = self.info.offset + first * n_bytes
        data = self.file.bytes[start : start + (last - first) * n_bytes]
        return data.reshape(last - first, n_bytes)

    def release(self) -> None:
        """Its range of the map."""
        self.file.release(self.info.offset, self.info.n_bytes)

    def items(self) -> NDArray[np.generic]:
        """Its values' bits as integers, in its shape."""
        self.file.check_unchanged()
        data = self.file.bytes[self.info.offset : self.info.offset + self.info.n_bytes]
        words = {"F32": np.uint32, "U8": np.uint8}.get(self.info.dtype, np.uint16)
        return np.frombuffer(data.data, words).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Picked:
    """Some rows of a tensor (of a vector: values), in an order of their own.

    Attributes:
        source: the tensor.
        order: numbers of its rows, slower dimensions flattened, or of a vector's values.
        shape: of what is picked.
    """

    source: Stored
    order: NDArray[np.int64]
    shape: Shape

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Of the source."""
        return self.source.qtype

    def rows(self, first: int, last: int) -> Bytes:
        """A copy of the rows."""
        items = self.source.items()
        if len(self.shape) == 1:
            return items[self.order].view(np.uint8).reshape(1, -1)[first:last]
        matrix = items.reshape(-1, items.shape[-1])
        return matrix[self.order[first:last]].view(np.uint8)

    def release(self) -> None:
        """The whole source."""
        self.source.release()


@dataclass(frozen=True, slots=True)
class Columns:
    """Some columns of a tensor, in an order of their own.

    Attributes:
        source: the tensor.
        order: numbers of its columns.
    """

    source: Stored
    order: NDArray[np.int64]

    @property
    def shape(self) -> Shape:
        """Of what is picked."""
        return (*self.source.shape[:-1], len(self.order))

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Of the source."""
        return self.source.qtype

    def rows(self, first: int, last: int) -> Bytes:
        """A copy of the rows."""
        items = self.source.items()
        matrix = items.reshape(-1, items.shape[-1])[first:last]
        return np.ascontiguousarray(matrix[:, self.order]).view(np.uint8)

    def release(self) -> None:
        """The whole source."""
        self.source.release()


@dataclass(frozen=True, slots=True)
class Transposed:
    """The last two dimensions exchanged; of the rows then, every ``step``-th from ``start`` on.

    Attributes:
        source: a matrix [inputs, outputs] or a stack of them.
        start: first row.
        step: from row to row.
    """

    source: Stored
    start: int = 0
    step: int = 1

    @property
    def shape(self) -> Shape:
        """[..., outputs / step, inputs]."""
        *stack, inputs, outputs = self.source.shape
        return (*stack, len(range(self.start, outputs, self.step)), inputs)

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Of the source."""
        return self.source.qtype

    def rows(self, first: int, last: int) -> Bytes:
        """A copy of the rows, matrix by matrix."""
        items, height = self.source.items(), self.shape[-2]
        stack = items.reshape(-1, *items.shape[-2:])
        parts = []
        while first < last:
            matrix, top = divmod(first, height)
            bottom = min(height, top + last - first)
            columns = slice(self.start + top * self.step, None, self.step)
            part = stack[matrix].T[columns][: bottom - top]
            parts.append(np.ascontiguousarray(part).view(np.uint8))
            first += bottom - top
        return np.concatenate(parts)

    def release(self) -> None:
        """The whole source."""
        self.source.release()


@dataclass(frozen=True, slots=True)
class Stacked:
    """Matrices of one shape and type, one below the other."""

    sources: Sequence[Reading]

    @property
    def shape(self) -> Shape:
        """[number, rows, columns]."""
        return (len(self.sources), *self.sources[0].shape)

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Of all of them."""
        return self.sources[0].qtype

    def rows(self, first: int, last: int) -> Bytes:
        """A view where the rows are of one matrix, else a copy."""
        height = prod(self.shape[1:-1])
        parts = []
        while first < last:
            number, top = divmod(first, height)
            bottom = min(height, top + last - first)
            parts.append(self.sources[number].rows(top, bottom))
            first += bottom - top
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def release(self) -> None:
        """All of them."""
        for source in self.sources:
            source.release()


@dataclass(frozen=True, slots=True)
class Computed:
    """Values in memory: small tensors that the file has in another form, or not at all."""

    values: NDArray[np.float32]

    @property
    def shape(self) -> Shape:
        """Of the values."""
        return self.values.shape

    @property
    def qtype(self) -> GGMLQuantizationType:
        """float32."""
        return GGMLQuantizationType.F32

    def rows(self, first: int, last: int) -> Bytes:
        """A view."""
        matrix = self.values.reshape(-1, self.values.shape[-1])
        return matrix[first:last].view(np.uint8)

    def release(self) -> None:
        """Nothing to give back."""


def values_of(source: Reading) -> NDArray[np.float32]:
    """All values of a small tensor as float32, in its shape."""
    rows = prod(source.shape[:-1])
    values = np.empty((rows, source.shape[-1]), np.float32)
    dequantize(source.rows(0, rows), source.qtype, values)
    return values.reshape(source.shape)

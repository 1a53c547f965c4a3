"""What every kind of model file gives to the code that runs it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.errors import GGUFError

from .metadata import Metadata
from .tensor_info import TensorInfo
from .wording import shown


class ModelFile(ABC):
    """An open model: metadata and tensors under the names that GGUF gives them.

    Once it is open, every tensor of the table is known to lie inside its file. Tensor bytes are
    read from disk when they are touched.

    Attributes:
        path: the file or folder named; for a split model the first shard.
        metadata: keys and values.
        tensors: all tensors by name.
        n_bytes: size of all files together.
        container: what kind of file it is, for people, e.g. ``GGUF 3``.
    """

    path: Path
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]
    n_bytes: int
    container: str

    def tensor(self, name: str, shape: tuple[int, ...] | None = None) -> TensorInfo:
        """Look a tensor up, and check its shape (NumPy order) if one is given.

        Raises:
            GGUFError: the tensor is missing, or has another shape.
        """
        info = self.tensors.get(name)
        if info is None:
            wanted = "" if shape is None else f" (expected shape {list(shape)})"
            raise GGUFError(
                f"{self.path}: tensor {shown(name)}{wanted} is missing; the file is incomplete "
                "or its metadata promise more than it holds: take another file"
            )
        if shape is not None and not _same_layout(info.shape, shape):
            raise GGUFError(
                f"{self.path}: tensor {shown(name)} has the wrong shape: expected {list(shape)}, "
                f"found {list(info.shape)}; convert the model again"
            )
        return info

    def raw(self, name: str) -> NDArray[np.uint8]:
        """Give a tensor's stored bytes: uint8 [rows, row_bytes], read-only, a view if it can be.

        Ask anew for each use: the file is checked now, not when the view is read.

        Raises:
            GGUFError: the tensor is missing, or the file was changed since it was opened.
        """
        return self.rows(name, 0, self.tensor(name).rows)

    @abstractmethod
    def rows(self, name: str, first: int, last: int) -> NDArray[np.uint8]:
        """Give rows first to last of a tensor: as `raw`, and C-contiguous."""

    def picked_rows(self, name: str, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Copy some rows of a tensor: uint8 [len(rows), row_bytes]; raises as `raw`."""
        return self.raw(name)[list(rows)]

    @abstractmethod
    def check_unchanged(self) -> None:
        """Check that what was read from the maps is what the files were when they were opened.

        Raises:
            GGUFError: a file was changed since.
        """

    @abstractmethod
    def sha256(self) -> str:
        """Hash the model, as `worker.model_source.model_sha256`, from the files that are open.

        Raises:
            GGUFError: a file cannot be read.
        """

    @abstractmethod
    def release(self, name: str) -> None:
        """Give a tensor's pages back to the system; touching them reads the file again."""

    @abstractmethod
    def close(self) -> None:
        """Let the maps go. Views from ``raw`` stay valid and keep theirs until they are gone."""


def files_text(count: int) -> str:
    """The number of a model's files as an addition to the name of their kind; none for one."""
    return "" if count == 1 else f" in {count} files"


def _same_layout(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Are the shapes equal, but that a vector may be stored as a matrix of one row?"""
    return found == expected or found == (1, *expected) or (1, *found) == expected

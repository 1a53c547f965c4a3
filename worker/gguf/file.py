"""A GGUF model file, or the files of a split model, opened as one."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from worker.errors import GGUFError, UnsupportedModelError
from worker.file_hash import joint_sha256

from .header import Header, read_header
from .layout import check_layout
from .mapped_file import MappedFile
from .metadata import Metadata
from .model_file import ModelFile, files_text
from .quant_types import SUPPORTED_TYPES, supported_names
from .shards import TENSORS_KEY, check_shard, other_shards
from .tensor_info import TensorInfo
from .wording import shown

ARCHITECTURE_KEY = "general.architecture"


class GGUFFile(ModelFile):
    """A memory-mapped, validated GGUF model (versions 2 and 3, little-endian).

    The metadata are those of the first shard; tensors come in the order of the files.

    Attributes: see `ModelFile`; besides
        version: of the format.
    """

    version: int

    def __init__(self, path: Path, files: list[MappedFile], headers: list[Header]) -> None:
        self.path = path
        self.version = headers[0].version
        self.container = f"GGUF {self.version}{files_text(len(files))}"
        self.metadata: Metadata = headers[0].metadata
        self.n_bytes = sum(file.size for file in files)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(_merge(files, headers))
        self._files = files

    @classmethod
    def open(cls, path: Path | str, *, any_type: bool = False) -> "GGUFFile":
        """Map a model and check its header against the size of the file.

        Args:
            path: the model; of a split model, its first shard.
            any_type: open a model although tensors have types that cannot be dequantised, to
                look at it.

        Raises:
            GGUFError: the file, or a shard of it, is missing or not sound.
            UnsupportedModelError: a tensor has a type that is not supported.
        """
        path = Path(path)
        files = [MappedFile(path)]
        headers = [_read_checked(files[0], 0)]
        first = headers[0].metadata
        for number, sibling in enumerate(other_shards(path, first), start=1):
            files.append(MappedFile(sibling))
            headers.append(_read_checked(files[-1], number))
            check_shard(sibling, headers[-1].metadata, number, first)
        _check_architecture(first)
        model = cls(path, files, headers)
        _check_tensor_count(model)
        if not any_type:
            check_types(path, model.tensors.values())
        return model

    def rows(self, name: str, first: int, last: int) -> NDArray[np.uint8]:
        """Give rows first to last of a tensor, see `ModelFile.rows`: a view of the map."""
        info = self.tensor(name)
        file = self._files[info.shard]
        file.check_unchanged()
        start = info.offset + first * info.row_bytes
        data = file.bytes[start : start + (last - first) * info.row_bytes]
        return data.reshape(last - first, info.row_bytes)

    def picked_rows(self, name: str, rows: Sequence[int]) -> NDArray[np.uint8]:
        """Copy some rows of a tensor, see `ModelFile.picked_rows`: read, not mapped.

        A page of a map that is touched brings its neighbours with it, and all of them count as
        memory of this process.
        """
        info = self.tensor(name)
        file = self._files[info.shard]
        file.check_unchanged()
        size = info.row_bytes
        data = b"".join([file.read(info.offset + row * size, size) for row in rows])
        return np.frombuffer(data, np.uint8).reshape(len(rows), size)

    def check_unchanged(self) -> None:
        """Check that no file was changed since it was opened, see `ModelFile`."""
        for file in self._files:
            file.check_unchanged()

    def sha256(self) -> str:
        """Hash the files that are open, see `ModelFile`."""
        return joint_sha256([file.sha256() for file in self._files])

    def release(self, name: str) -> None:
        """Give a tensor's pages back to the system, see `ModelFile`."""
        info = self.tensor(name)
        self._files[info.shard].release(info.offset, info.n_bytes)

    def close(self) -> None:
        """Let the maps go, see `ModelFile`."""
        self._files = []
        self.tensors = MappingProxyType({})


def check_types(path: Path, tensors: Iterable[TensorInfo]) -> None:
    """Check that all tensors can be dequantised.

    Raises:
        UnsupportedModelError: naming the first that cannot, and the types that are supported.
    """
    for info in tensors:
        if info.qtype not in SUPPORTED_TYPES:
            raise UnsupportedModelError(
                f"{path}: tensor {shown(info.name)} is {info.qtype.name} (type {info.qtype.value});"
                f" supported types: {supported_names()}. Re-quantise with one of these."
            )


def _read_checked(file: MappedFile, shard: int) -> Header:
    header = read_header(file, shard)
    check_layout(file, header)
    return header


def _merge(files: list[MappedFile], headers: list[Header]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for info in (info for header in headers for info in header.tensors):
        if info.name in tensors:
            shards = [files[each.shard].path.name for each in (tensors[info.name], info)]
            raise GGUFError(
                f"{files[info.shard].path}: tensor {shown(info.name)} is in both {shards[0]} and "
                f"{shards[1]}; the shards are of different models: copy or download them again"
            )
        tensors[info.name] = info
    return tensors


def _check_architecture(metadata: Metadata) -> None:
    if not metadata.text(ARCHITECTURE_KEY):
        raise GGUFError(
            f"{metadata.path}: key {ARCHITECTURE_KEY} is empty, expected a name such as llama; "
            "convert the model again"
        )


def _check_tensor_count(model: GGUFFile) -> None:
    expected = model.metadata.integer(TENSORS_KEY, None)
    if expected is not None and expected != len(model.tensors):
        raise GGUFError(
            f"{model.path}: key {TENSORS_KEY} is {expected}, but the shards hold "
            f"{len(model.tensors)} tensors; copy or download all shards again"
        )

"""The hyperparameters of a checkpoint as GGUF metadata."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from worker.errors import CheckpointError
from worker.file_identity import FileIdentity
from worker.gguf import Metadata
from worker.gguf.value import Value
from worker.gguf.wording import shown

_LARGEST = 1 << 63


class FolderMetadata(Metadata):
    """Keys and values made from the JSON files of a folder."""

    def __init__(self, path: Path, values: Mapping[str, object]) -> None:
        """Take the values of the keys; lists become arrays.

        Args:
            path: of the file that most of them come from.
            values: by key.

        Raises:
            CheckpointError: a value is none that metadata can have.
        """
        self._path = path
        self._values = {key: _value(path, key, value) for key, value in values.items()}

    @property
    def path(self) -> Path:
        """The file, see `Metadata`."""
        return self._path

    @property
    def identity(self) -> FileIdentity:
        """Version of the file, see `Metadata`."""
        return FileIdentity.of(self._path)

    def __getitem__(self, key: str) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def describe(self, key: str) -> str:
        """Name the type of a key, see `Metadata`."""
        value = self._values[key]
        if isinstance(value, np.ndarray | list):
            kind = "string" if isinstance(value, list) else value.dtype.name
            return f"array of {len(value)} {kind}"
        return type(value).__name__

    def array_length(self, key: str) -> int | None:
        """Give the number of elements of an array, see `Metadata`."""
        value = self._values.get(key)
        return len(value) if isinstance(value, np.ndarray | list) else None


def _value(path: Path, key: str, value: object) -> Value:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    if isinstance(value, list):
        for kind, dtype in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
            if all(type(each) is kind and abs(each) < _LARGEST for each in value):
                return np.array(value, dtype)
    raise CheckpointError(
        f"{path}: {shown(value)} cannot be the value of {key}; take a complete checkpoint, or "
        "correct the file"
    )

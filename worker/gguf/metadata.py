"""The metadata of a model file, read by key and type."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from worker.errors import GGUFError
from worker.file_identity import FileIdentity

from .mapped_file import MappedFile
from .value import Entry, Value, decode_value
from .wording import shown

D = TypeVar("D")


class _Required:
    """The default of a key that has none."""


REQUIRED = _Required()


class Metadata(Mapping[str, Value]):
    """Keys and values of a model; a value is decoded when it is first asked for.

    The typed getters raise GGUFError, naming file and key, for a key that is missing (when no
    default is given) or has a value of another type. ``default`` may be of any type, e.g. None.
    """

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file, for messages."""

    @property
    @abstractmethod
    def identity(self) -> FileIdentity:
        """Which version of which file this is, for what is kept of it."""

    @abstractmethod
    def describe(self, key: str) -> str:
        """Name the stored type of a key, e.g. ``uint32`` or ``array of 26 bool``."""

    @abstractmethod
    def array_length(self, key: str) -> int | None:
        """Give the number of elements of an array without decoding it; None for no array."""

    @overload
    def integer(self, key: str) -> int: ...
    @overload
    def integer(self, key: str, default: D) -> int | D: ...
    def integer(self, key: str, default: Any = REQUIRED) -> Any:
        """Get an integer of any stored width."""
        value = self._get(key, default)
        if value is default or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._ill_typed(key, "an integer")

    @overload
    def number(self, key: str) -> float: ...
    @overload
    def number(self, key: str, default: D) -> float | D: ...
    def number(self, key: str, default: Any = REQUIRED) -> Any:
        """Get a finite number, stored as float or integer, as a float."""
        value = self._get(key, default)
        if value is default:
            return value
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._ill_typed(key, "a number")
        if not isfinite(value):
            raise GGUFError(
                f"{self.path}: key {shown(key)} is {value}, expected a finite number; "
                "convert the model again"
            )
        return float(value)

    @overload
    def text(self, key: str) -> str: ...
    @overload
    def text(self, key: str, default: D) -> str | D: ...
    def text(self, key: str, default: Any = REQUIRED) -> Any:
        """Get a string."""
        value = self._get(key, default)
        if value is default or isinstance(value, str):
            return value
        raise self._ill_typed(key, "a string")

    @overload
    def boolean(self, key: str) -> bool: ...
    @overload
    def boolean(self, key: str, default: D) -> bool | D: ...
    def boolean(self, key: str, default: Any = REQUIRED) -> Any:
        """Get a boolean."""
        value = self._get(key, default)
        if value is default or isinstance(value, bool):
            return value
        raise self._ill_typed(key, "a boolean")

    @overload
    def array(self, key: str) -> list[str] | NDArray[np.generic]: ...
    @overload
    def array(self, key: str, default: D) -> list[str] | NDArray[np.generic] | D: ...
    def array(self, key: str, default: Any = REQUIRED) -> Any:
        """Get an array of any kind: a list of str, or numbers or booleans [count]."""
        value = self._get(key, default)
        if value is default or isinstance(value, list | np.ndarray):
            return value
        raise self._ill_typed(key, "an array")

    @overload
    def strings(self, key: str) -> list[str]: ...
    @overload
    def strings(self, key: str, default: D) -> list[str] | D: ...
    def strings(self, key: str, default: Any = REQUIRED) -> Any:
        """Get an array of strings."""
        value = self._get(key, default)
        if value is default or isinstance(value, list):
            return value
        raise self._ill_typed(key, "an array of strings")

    @overload
    def numbers(self, key: str) -> NDArray[np.generic]: ...
    @overload
    def numbers(self, key: str, default: D) -> NDArray[np.generic] | D: ...
    def numbers(self, key: str, default: Any = REQUIRED) -> Any:
        """Get an array of numbers or booleans [count] with the dtype of the file."""
        value = self._get(key, default)
        if value is default or isinstance(value, np.ndarray):
            return value
        raise self._ill_typed(key, "an array of numbers")

    def _get(self, key: str, default: object) -> object:
        if key in self:
            return self[key]
        if default is REQUIRED:
            raise GGUFError(
                f"{self.path}: key {shown(key)} is missing from the metadata; convert the model "
                "again with a current converter, or take another file"
            )
        return default

    def _ill_typed(self, key: str, expected: str) -> GGUFError:
        return GGUFError(
            f"{self.path}: key {shown(key)} is stored as {self.describe(key)}, expected "
            f"{expected}; convert the model again"
        )


class GGUFMetadata(Metadata):
    """The metadata of a GGUF file."""

    def __init__(self, file: MappedFile, entries: Mapping[str, Entry]) -> None:
        self._file = file
        self._entries = entries
        self._decoded: dict[str, Value] = {}

    @property
    def path(self) -> Path:
        """The file, see `Metadata`."""
        return self._file.path

    @property
    def identity(self) -> FileIdentity:
        """Version of the file, see `Metadata`."""
        return self._file.identity

    def __getitem__(self, key: str) -> Value:
        if key not in self._decoded:
            self._decoded[key] = decode_value(self._file, key, self._entries[key])
        return self._decoded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def describe(self, key: str) -> str:
        """Name the stored type of a key, see `Metadata`."""
        return str(self._entries[key])

    def array_length(self, key: str) -> int | None:
        """Give the number of elements of an array, see `Metadata`."""
        entry = self._entries.get(key)
        return None if entry is None else entry.count

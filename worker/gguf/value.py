"""Metadata values: where they lie in the file, and how they are decoded."""

import struct
from dataclasses import dataclass

import numpy as np
from gguf.constants import GGUFValueType
from numpy.typing import NDArray

from worker.errors import GGUFError

from .cursor import Cursor
from .mapped_file import MappedFile
from .wording import shown

Value = int | float | bool | str | list[str] | NDArray[np.generic]
"""A decoded metadata value: a scalar, strings, or a one-dimensional array of numbers."""

_DTYPES: dict[GGUFValueType, np.dtype[np.generic]] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.BOOL: np.dtype("?"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Entry:
    """A metadata value that is in the file whole, not decoded yet.

    Attributes:
        kind: type of the value, or of the array's elements.
        count: number of elements of an array; None for a scalar.
        start: offset of the value's first byte in the file (of a string: its length).
        end: offset behind its last byte.
    """

    kind: GGUFValueType
    count: int | None
    start: int
    end: int

    def __str__(self) -> str:
        name = self.kind.name.lower()
        return name if self.count is None else f"array of {self.count} {name}"


def scan_value(cursor: Cursor, file: MappedFile, key: str) -> Entry:
    """Walk over the value at the cursor, checking all of its lengths.

    Raises:
        GGUFError: a type that does not exist, a nested array, a length beyond the file's end or
            a boolean that is neither 0 nor 1.
    """
    kind = _read_kind(cursor, f"the type of key {shown(key)}")
    count = None
    if kind is GGUFValueType.ARRAY:
        kind = _read_kind(cursor, f"the element type of key {shown(key)}")
        if kind is GGUFValueType.ARRAY:
            raise GGUFError(
                f"{cursor.path}: key {shown(key)} is an array of arrays; nested arrays are not "
                "read, only arrays of scalars or strings: convert the model again without this key"
            )
        count = cursor.u64(f"the length of key {shown(key)}")
    start = _skip_elements(cursor, kind, 1 if count is None else count, f"key {shown(key)}")
    if kind is GGUFValueType.BOOL:
        _check_booleans(file, start, cursor.position, key)
    return Entry(kind, count, start, cursor.position)


def _read_kind(cursor: Cursor, what: str) -> GGUFValueType:
    number = cursor.u32(what)
    try:
        return GGUFValueType(number)
    except ValueError:
        raise GGUFError(
            f"{cursor.path}: {what} is {number} at offset {cursor.position - 4}; value types go "
            f"from 0 to {max(GGUFValueType)}: the file is damaged, copy or download the file again"
        ) from None


def _skip_elements(cursor: Cursor, kind: GGUFValueType, count: int, what: str) -> int:
    size = 8 if kind is GGUFValueType.STRING else _DTYPES[kind].itemsize
    if count * size > cursor.remaining:
        raise GGUFError(
            f"{cursor.path}: {what} promises {count} elements of at least {size} bytes at offset "
            f"{cursor.position}, but the file has only {cursor.size} bytes and is too small for "
            "it; copy or download the file again"
        )
    if kind is GGUFValueType.STRING:
        return cursor.skip_strings(count, what)
    return cursor.skip(count * size, what)


def _check_booleans(file: MappedFile, start: int, end: int, key: str) -> None:
    found = int(file.bytes[start:end].max(initial=0))
    if found > 1:
        raise GGUFError(
            f"{file.path}: key {shown(key)} is a boolean with the value {found}, expected 0 or 1; "
            "the file is damaged: copy or download the file again"
        )


def decode_value(file: MappedFile, key: str, entry: Entry) -> Value:
    """Decode a value: Python scalars, list of str, or a NumPy copy [count].

    Raises:
        GGUFError: a string is not valid UTF-8.
    """
    if entry.kind is GGUFValueType.STRING:
        strings = _decode_strings(file, key, entry)
        return strings[0] if entry.count is None else strings
    numbers = file.bytes[entry.start : entry.end].view(_DTYPES[entry.kind])
    if entry.count is not None:
        return numbers.copy()
    scalar: int | float | bool = numbers.item()
    return scalar


def _decode_strings(file: MappedFile, key: str, entry: Entry) -> list[str]:
    blob = file.bytes[entry.start : entry.end].tobytes()
    strings = []
    position, unpack = 0, _LENGTH.unpack_from
    while position < len(blob):
        (n_bytes,) = unpack(blob, position)
        position += 8
        try:
            strings.append(blob[position : position + n_bytes].decode())
        except UnicodeDecodeError as error:
            which = f"string {len(strings)} of key" if entry.count is not None else "key"
            raise GGUFError(
                f"{file.path}: {which} {shown(key)} is not valid UTF-8 (found bytes "
                f"{shown(error.object)}); convert the model again"
            ) from None
        position += n_bytes
    return strings

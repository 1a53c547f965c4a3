"""The header of a safetensors file: names, types, shapes and places of its tensors.

::

    [bytes of the header, uint64][header, JSON][tensor][tensor] ...

Format: https://github.com/huggingface/safetensors#format. The header is parsed entry by entry, so
that memory is taken for tensors only, whatever a file claims to hold.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

from worker.errors import CheckpointError
from worker.gguf.mapped_file import MappedFile
from worker.gguf.wording import shown

MAX_HEADER_BYTES = 1 << 23  # of 50,000 tensors in one file
_MAX_ENTRY_BYTES = 2048  # of one tensor's entry, its name apart
_MAX_DIMENSIONS = 8
_METADATA = "__metadata__"
_ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class StoredInfo:
    """One tensor of a file.

    Attributes:
        dtype: as the format calls it, e.g. ``BF16``.
        shape: slowest dimension first; empty for a scalar.
        offset: of its first byte, from the start of the file.
        n_bytes: of its values.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


def read_header(file: MappedFile) -> dict[str, StoredInfo]:
    """Read and check the header: every tensor lies inside the file and overlaps no other.

    Raises:
        CheckpointError: the file is no sound safetensors file.
    """
    start, text = _header_text(file)
    tensors: dict[str, StoredInfo] = {}
    for name, entry in _entries(file, text):
        if name in tensors:
            raise _damaged(file, f"tensor {shown(name)} is there twice")
        if name != _METADATA:
            tensors[name] = _info(file, name, entry, start)
    _check_places(file, tensors, start)
    return tensors


def _header_text(file: MappedFile) -> tuple[int, str]:
    """Give the offset of the data and the header before it."""
    length = int.from_bytes(file.bytes[:8].tobytes(), "little")
    if file.size < 8 or length > file.size - 8:
        raise _damaged(
            file, f"the header has a length of {length} bytes, but the file only {file.size} bytes"
        )
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise _damaged(
            file, f"the header has a length of {length} bytes, expected 2 to {MAX_HEADER_BYTES}"
        )
    raw = file.bytes[8 : 8 + length].tobytes()
    try:
        return 8 + length, raw.decode()
    except UnicodeDecodeError:
        raise _damaged(file, "the header is not valid UTF-8") from None


def _entries(file: MappedFile, text: str) -> Iterator[tuple[str, object]]:
    """Take the header's object apart, one member at a time."""
    scanner = _Scanner(file, text)
    scanner.step_over("{")
    more = scanner.next() != "}"
    while more:
        start = scanner.position
        scanner.step_over_string()
        name = _parsed(file, text[start : scanner.position], f"the name at {start}")
        scanner.step_over(":")
        scanner.next()
        if name == _METADATA:
            scanner.step_over_remarks()
            yield _METADATA, None
        else:
            entry = scanner.take_entry(shown(name))
            yield str(name), _parsed(file, entry, f"the entry of tensor {shown(name)}")
        more = scanner.next() == ","
        if more:
            scanner.step_over(",")
            scanner.next()
    scanner.step_over("}")
    if scanner.next():
        raise _damaged(file, f"the header goes on behind its end, at {scanner.position}")


class _Scanner:
    """A position in the text of a header."""

    def __init__(self, file: MappedFile, text: str) -> None:
        self.position = 0
        self._file, self._text = file, text

    def next(self) -> str:
        """Step over blanks; give the character there, nothing at the end."""
        blanks = _BLANKS.match(self._text, self.position)
        assert blanks is not None  # it matches the empty string, too
        self.position = blanks.end()
        return self._text[self.position : self.position + 1]

    def step_over(self, expected: str) -> None:
        """Step over blanks and one character, which must be there."""
        found = self.next()
        if found != expected:
            raise _damaged(
                self._file,
                f"the header has {shown(found)!r} at {self.position}, expected {expected!r}",
            )
        self.position += 1

    def step_over_string(self) -> None:
        """Step over a string and its quotes."""
        if self.next() != '"':
            self.step_over('"')
        found = _STRING.match(self._text, self.position)
        if found is None:
            raise _damaged(self._file, f"the header has a string at {self.position} without an end")
        self.position = found.end()

    def step_over_remarks(self) -> None:
        """Step over an object of strings, however long."""
        self.step_over("{")
        while (found := self.next()) != "}":
            if found == '"':
                self.step_over_string()
            elif found in (":", ","):
                self.step_over(found)
            else:
                raise _damaged(self._file, f"{_METADATA} has {shown(found)!r} at {self.position}")
        self.step_over("}")

    def take_entry(self, name: str) -> str:
        """Give the text of an object without objects inside, and step over it."""
        start, most = self.position, self.position + _MAX_ENTRY_BYTES
        end = self._text.find("}", start, most) + 1
        if end == 0:
            raise _damaged(
                self._file, f"the entry of tensor {name} has no end within {_MAX_ENTRY_BYTES} bytes"
            )
        self.position = end
        return self._text[start:end]


def _parsed(file: MappedFile, text: str, what: str) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged(file, f"{what} is no JSON text ({shown(str(error))})") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _info(file: MappedFile, name: str, entry: object, start: int) -> StoredInfo:
    what = f"tensor {shown(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"{what} has the entry {shown(entry)}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    item_bytes = _ITEM_BYTES.get(dtype) if isinstance(dtype, str) else None
    if item_bytes is None:
        raise _damaged(file, f"{what} is of type {shown(dtype)}, which is not known")
    if not _is_counts(shape, _MAX_DIMENSIONS) or not _is_counts(offsets, 2) or len(offsets) != 2:
        raise _damaged(file, f"{what} has the shape {shown(shape)} at {shown(offsets)}")
    first, last = offsets
    n_bytes = prod(shape) * item_bytes
    if last - first != n_bytes:
        raise _damaged(
            file, f"{what} has the shape {shape} of {dtype}, {n_bytes} bytes, at {offsets}"
        )
    if last > file.size - start:
        raise _damaged(
            file, f"{what} ends at byte {start + last}, but the file has only {file.size} bytes"
        )
    return StoredInfo(dtype, tuple(shape), start + first, n_bytes)


def _is_counts(value: object, most: int) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= most
        and all(type(each) is int and 0 <= each < 1 << 62 for each in value)
    )


def _check_places(file: MappedFile, tensors: dict[str, StoredInfo], start: int) -> None:
    """Tensors follow each other without a gap, up to the end of the file."""
    end = start
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].offset, item[1].n_bytes)):
        if info.offset != end:
            raise _damaged(
                file, f"tensor {shown(name)} begins at byte {info.offset}, expected {end}"
            )
        end += info.n_bytes
    if end != file.size:
        raise _damaged(file, f"the tensors end at byte {end}, but the file has {file.size} bytes")


def _damaged(file: MappedFile, problem: str) -> CheckpointError:
    return CheckpointError(
        f"{file.path}: {problem}; this is no sound safetensors file: copy or download it again"
    )

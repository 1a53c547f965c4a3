"""The header of a packed file: whose weights it holds, which tensors, and where they lie.

::

    [magic, version, lengths, checksum][index, JSON][zeros][tensor][zeros][tensor] ...

Tensors start on pages. The checksum covers the header alone: a file gets its name only when it
is whole and on disk, and its size tells one that was cut.
"""

import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO

from gguf.constants import GGMLQuantizationType

from .gguf import ModelFile, TensorInfo
from .kernels.layouts import LAYOUT_VERSION, Layout, layout_of

PAGE = 4096
"""Bytes: tensors and the first of them start at multiples of it."""

_MAGIC = b"tmpacked"
_FORMAT_VERSION = 1
_HEAD = struct.Struct("<8sIIQ32s")  # magic, version, bytes of the index, of the file, SHA-256
_LARGEST_INDEX = 1 << 26  # bytes; a large model's takes some hundred thousand


class UnsoundPackedFileError(Exception):
    """A file in the packed folder is not what its name says; the message tells why.

    Never reaches the user: such a file is written anew.
    """


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """Where one packed tensor lies.

    Attributes:
        name: as in the model file.
        type_name: of its values.
        rows: of the tensor, without those that fill up the last row block.
        columns: values of a row.
        offset: of its first byte behind the header.
        n_bytes: of all its row blocks.
    """

    name: str
    type_name: str
    rows: int
    columns: int
    offset: int
    n_bytes: int

    @property
    def qtype(self) -> GGMLQuantizationType:
        """Type of its values."""
        return GGMLQuantizationType[self.type_name]

    @property
    def layout(self) -> Layout:
        """How its bytes lie."""
        layout = layout_of(self.qtype)
        assert layout is not None, f"{self.name} is {self.type_name}, which has no packed layout"
        return layout

    @property
    def row_block_bytes(self) -> int:
        """Bytes from one row block to the next."""
        return self.layout.row_block_bytes(self.columns)


@dataclass(frozen=True)
class PackedIndex:
    """What a packed file holds.

    Attributes:
        model: name of the model file that was packed, for people.
        model_sha256: of the model.
        layout_version: of the tensors.
        entries: in the order of the file.
    """

    model: str
    model_sha256: str
    layout_version: int
    entries: tuple[PackedEntry, ...]

    @classmethod
    def of(cls, gguf: ModelFile, names: Iterable[str]) -> "PackedIndex":
        """Plan the packed form of these tensors; hashes the model if its hash is not known."""
        entries, offset = [], 0
        for name in names:
            entry = _entry(gguf.tensor(name), offset)
            entries.append(entry)
            offset = _whole_pages(offset + entry.n_bytes)
        return cls(gguf.path.name, gguf.sha256(), LAYOUT_VERSION, tuple(entries))

    @cached_property
    def key(self) -> str:
        """Name of this content: 32 hexadecimal digits of a SHA-256."""
        content = (_FORMAT_VERSION, self.model_sha256, self.layout_version, *_rows(self.entries))
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]

    @cached_property
    def header(self) -> bytes:
        """The bytes in front of the first tensor, whole pages."""
        index = json.dumps(asdict(self), separators=(",", ":")).encode()
        start = _whole_pages(_HEAD.size + len(index))
        total = start + self.n_bytes
        checksum = _checksum(total, index)
        head = _HEAD.pack(_MAGIC, _FORMAT_VERSION, len(index), total, checksum)
        return (head + index).ljust(start, b"\0")

    @property
    def n_bytes(self) -> int:
        """Bytes of all tensors with the zeros between them."""
        last = self.entries[-1]
        return last.offset + last.n_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes of the file."""
        return len(self.header) + self.n_bytes

    def has_content_of(self, other: "PackedIndex") -> bool:
        """Tell whether both are of the same tensors, whatever the model files are called."""
        return (self.model_sha256, self.layout_version, self.entries) == (
            other.model_sha256,
            other.layout_version,
            other.entries,
        )


def read_index(file: BinaryIO, file_bytes: int) -> PackedIndex:
    """Read and check the header of an open file of this size.

    Raises:
        UnsoundPackedFileError: it is no packed file of this version, cut or damaged.
        OSError: it cannot be read.
    """
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise UnsoundPackedFileError("it does not begin as a packed file does")
    _, version, index_bytes, total, checksum = _HEAD.unpack(head)
    if version != _FORMAT_VERSION:
        raise UnsoundPackedFileError(f"its version is {version}, expected {_FORMAT_VERSION}")
    if total != file_bytes:
        raise UnsoundPackedFileError(f"it has {file_bytes} bytes, expected {total}")
    if index_bytes > min(file_bytes, _LARGEST_INDEX):
        raise UnsoundPackedFileError(f"its index promises {index_bytes} bytes")
    index = file.read(index_bytes)
    if _checksum(total, index) != checksum:
        raise UnsoundPackedFileError("its header is damaged")
    return _parse(index)


def _parse(index: bytes) -> PackedIndex:
    """Rebuild the index from JSON whose checksum is right, so that it is our own."""
    fields: dict[str, Any] = json.loads(index)
    entries = tuple(PackedEntry(**entry) for entry in fields.pop("entries"))
    return PackedIndex(**fields, entries=entries)


def _entry(info: TensorInfo, offset: int) -> PackedEntry:
    unsized = PackedEntry(info.name, info.qtype.name, info.rows, info.columns, offset, 0)
    return replace(unsized, n_bytes=unsized.layout.packed_bytes(info.rows, info.columns))


def _rows(entries: Iterable[PackedEntry]) -> list[tuple[str, str, int, int]]:
    return [(each.name, each.type_name, each.rows, each.columns) for each in entries]


def _checksum(total: int, index: bytes) -> bytes:
    return hashlib.sha256(total.to_bytes(8, "little") + index).digest()


def _whole_pages(n_bytes: int) -> int:
    return -(-n_bytes // PAGE) * PAGE

"""Packed weights: made once for each model and machine, then shared by all processes.

The packed form of a model lies in the cache folder and is mapped read-only, so that the workers
of a node share its pages. Where it cannot be kept there, a process packs into its own memory.
"""

import contextlib
import logging
import mmap
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

from .file_in_use import hold_shared
from .folder_sync import sync_folder
from .gguf import ModelFile
from .kernels.layouts import ROWS, row_blocks
from .packed_folder import TEMPORARY_PREFIX, NoRoomError, PackedFolder
from .packed_index import PackedEntry, PackedIndex, UnsoundPackedFileError, read_index
from .packed_writer import pack_tensors
from .thread_team import ThreadTeam

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """One packed matrix; see kernels/layouts.py for what its bytes mean.

    Attributes:
        qtype: type of its values.
        rows: without those that fill up the last row block.
        columns: values of a row.
        data: uint8 [row blocks, row_block_bytes], read-only; keeps the memory alive.
    """

    qtype: GGMLQuantizationType
    rows: int
    columns: int
    data: NDArray[np.uint8]

    @property
    def address(self) -> int:
        """Where its first row block begins; a multiple of 64, valid while `data` is referenced."""
        return int(self.data.__array_interface__["data"][0])

    @property
    def row_block_bytes(self) -> int:
        """Bytes from one row block to the next."""
        return int(self.data.shape[1])

    def of_rows(self, first: int, last: int) -> "PackedTensor":
        """Rows first to last, the same memory; whole row blocks lie before them."""
        assert first % ROWS == 0, f"row {first} of {self.rows} begins no row block"
        data = self.data[first // ROWS : row_blocks(last)]
        return PackedTensor(self.qtype, last - first, self.columns, data)


class PackedWeights:
    """The packed tensors of a model.

    Attributes:
        n_bytes: of all tensors.
        from_file: whether they are mapped from the cache folder and so shared with other
            processes; else they are in this process's own memory.
    """

    n_bytes: int
    from_file: bool

    def __init__(self, index: PackedIndex, data: NDArray[np.uint8], *, from_file: bool) -> None:
        """Take the bytes behind the header, uint8 [index.n_bytes]."""
        self.n_bytes = index.n_bytes
        self.from_file = from_file
        self._tensors: Mapping[str, PackedTensor] = MappingProxyType(
            {entry.name: _tensor(entry, data) for entry in index.entries}
        )

    def tensor(self, name: str) -> PackedTensor:
        """Look up one of the tensors that were asked for.

        Raises:
            KeyError: it was not among them.
        """
        return self._tensors[name]


def open_packed(gguf: ModelFile, names: Sequence[str], team: ThreadTeam) -> PackedWeights:
    """Map the packed form of some tensors, made first when the cache folder does not have it.

    Args:
        gguf: the model.
        names: the tensors, each once, all of types that `layout_of` knows; best in the order in
            which a step needs them.
        team: packs.

    Raises:
        GGUFError: a tensor is missing, or the model file was changed since it was opened.
    """
    assert names, "no tensor was named"
    assert len(set(names)) == len(names), f"a tensor is named twice in {names}"
    index = PackedIndex.of(gguf, names)
    folder = PackedFolder()
    try:
        return _from_folder(folder, gguf, index, team)
    except OSError as error:
        _warn_not_kept(folder, index, error)
    return _in_memory(gguf, index, team)


def _from_folder(
    folder: PackedFolder, gguf: ModelFile, index: PackedIndex, team: ThreadTeam
) -> PackedWeights:
    path = folder.path_of(index.key)
    weights = _open(path, index)
    if weights is None:
        with folder.writing():
            weights = _open(path, index)  # another process may have written it meanwhile
            if weights is None:
                folder.make_room(index.file_bytes)
                weights = _write(path, gguf, index, team)
    return weights


def _open(path: Path, index: PackedIndex) -> PackedWeights | None:
    """Map a packed file; None when it is not there or not sound."""
    try:
        with path.open("rb") as file:
            hold_shared(file)
            stat = os.fstat(file.fileno())
            if stat.st_nlink == 0:
                return None  # removed between the two calls
            if not read_index(file, stat.st_size).has_content_of(index):
                raise UnsoundPackedFileError("it is of other tensors")
            weights = _map(file, index, stat.st_size)
    except FileNotFoundError:
        return None
    except UnsoundPackedFileError as error:
        _log.warning("%s is not used: %s; packing again", path, error)
        return None
    with contextlib.suppress(OSError):  # not ours to write: it only counts as used less recently
        os.utime(path)
    return weights


def _write(path: Path, gguf: ModelFile, index: PackedIndex, team: ThreadTeam) -> PackedWeights:
    """Write a packed file and map it. It appears whole or not at all."""
    _log.info("packing %d tensors of %s into %s", len(index.entries), gguf.path, path)
    with _new_file(path) as file:
        start = len(index.header)
        _write_at(file, 0, np.frombuffer(index.header, np.uint8))
        os.truncate(file.fileno(), index.file_bytes)
        pack_tensors(gguf, index, team, lambda at, data: _write_at(file, start + at, data))
        return _map(file, index, index.file_bytes)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets its name when the block has ended without an error."""
    partial = path.with_name(f"{TEMPORARY_PREFIX}{path.stem}")
    try:
        with partial.open("x+b", buffering=0) as file:
            hold_shared(file)  # from before it has its name: nobody removes it before it is used
            yield file
            os.fsync(file.fileno())
            partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write_at(file: BinaryIO, offset: int, data: NDArray[np.uint8]) -> None:
    """Write all bytes at an offset; threads may do so at the same time."""
    left = data.data
    while left:
        written = os.pwrite(file.fileno(), left, offset)
        left, offset = left[written:], offset + written


def _map(file: BinaryIO, index: PackedIndex, file_bytes: int) -> PackedWeights:
    """Map an open packed file; the map keeps its shared lock."""
    mapped = mmap.mmap(file.fileno(), file_bytes, access=mmap.ACCESS_READ)
    data = np.frombuffer(mapped, np.uint8)[file_bytes - index.n_bytes :]
    return PackedWeights(index, data, from_file=True)


def _in_memory(gguf: ModelFile, index: PackedIndex, team: ThreadTeam) -> PackedWeights:
    """Pack into memory of this process, whose pages it shares with nobody."""
    data = np.frombuffer(mmap.mmap(-1, index.n_bytes), np.uint8)  # on pages, zero

    def write(offset: int, packed: NDArray[np.uint8]) -> None:
        data[offset : offset + len(packed)] = packed

    pack_tensors(gguf, index, team, write)
    data.flags.writeable = False
    return PackedWeights(index, data, from_file=False)


def _tensor(entry: PackedEntry, data: NDArray[np.uint8]) -> PackedTensor:
    row_blocks = data[entry.offset : entry.offset + entry.n_bytes]
    shaped = row_blocks.reshape(-1, entry.row_block_bytes)
    return PackedTensor(entry.qtype, entry.rows, entry.columns, shaped)


def _warn_not_kept(folder: PackedFolder, index: PackedIndex, error: OSError) -> None:
    fix = "free disk space, or set TOKENMILL_CACHE to a folder that can be written"
    reason = str(error) if isinstance(error, NoRoomError) else f"{error.strerror or error}; {fix}"
    warnings.warn(
        f"packed weights cannot be kept in {folder.path}: {reason}. Every process packs them into "
        f"{index.n_bytes / 2**20:,.0f} MiB of its own memory instead",
        RuntimeWarning,
        stacklevel=3,
    )

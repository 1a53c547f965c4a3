"""Parquet footers: checked before pyarrow allocates anything for them."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import InputError
from .input_files import display
from .location import Location

_MAGIC: Final = b"PAR1"
_ENCRYPTED_MAGIC: Final = b"PARE"
_TAIL_BYTES: Final = 8  # footer length (4 bytes, little-endian) and magic
_SMALLEST_FILE: Final = len(_MAGIC) + _TAIL_BYTES
_READ_BUFFER_BYTES: Final = 1 << 20

_ENCRYPTED: Final = "encrypted; decrypt it before the run"
DAMAGED: Final = "the file is damaged or incomplete; write it again or take it out of the input"
_UNSUPPORTED: Final = "write the file again, compressed by zstd or snappy"
_NEEDS_MORE: Final = re.compile(
    "(compression|codec).*not (supported|built)|unsupported compression", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What a footer says of one row group: its rows and its encoded, uncompressed bytes."""

    num_rows: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The checked footer of one Parquet file.

    Attributes:
        schema: the Arrow schema pyarrow reads the file with.
        row_groups: in file order.
        size: of the file, in bytes.
        sha256: of the footer's own bytes: the manifest's fingerprint of the file.
    """

    schema: pa.Schema
    row_groups: tuple[RowGroup, ...]
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Tail:
    """What a file's last bytes say: enough to tell whether it is the file that it was.

    Attributes:
        size: of the file, in bytes.
        footer_length: in bytes.
        sha256: of the footer's own bytes.
    """

    size: int
    footer_length: int
    sha256: str


@contextmanager
def open_regular(path: Location, name: str) -> Iterator[BinaryIO]:
    """Open a file or object for reading.

    Python opens files itself, so no part of a name is taken for a URL.

    Raises:
        InputError: it is a pipe or a device; opening a pipe would wait for its writer.
        OSError: it cannot be opened.
    """
    if isinstance(path, Path) and not stat.S_ISREG(path.stat().st_mode):
        raise InputError(f"{name}: not a regular file; give a Parquet file")
    with path.open("rb") as file:
        yield file


def open_parquet(file: BinaryIO) -> pq.ParquetFile:
    """Open a Parquet file for streaming: pages are read as they are needed, checksums verified."""
    return pq.ParquetFile(
        file,
        buffer_size=_READ_BUFFER_BYTES,
        pre_buffer=False,
        page_checksum_verification=True,
    )


def read_footer(path: Location, name: str) -> Footer:
    """Read and check the footer of one file.

    Args:
        path: the file.
        name: what to call it in messages.

    Raises:
        InputError: unreadable, not Parquet, encrypted, or the footer is missing or does not fit
            the file. Nothing of the size that the file claims is allocated before it is checked.
    """
    name = display(name)
    try:
        with open_regular(path, name) as file:
            tail = read_tail(file, name)
            parquet = open_parquet(file)
            metadata, schema = parquet.metadata, parquet.schema_arrow
            groups = tuple(
                _row_group(metadata.row_group(index), index, name)
                for index in range(metadata.num_row_groups)
            )
            _refuse_encrypted_columns(parquet, tail.footer_length, name)
    except (OSError, pa.ArrowException, ValueError, OverflowError, RuntimeError) as error:
        raise _unreadable(name, error) from error
    total = sum(group.num_rows for group in groups)
    if total != metadata.num_rows:
        raise InputError(
            f"{name}: the footer counts {metadata.num_rows} rows, its row groups {total}: {DAMAGED}"
        )
    return Footer(schema, groups, tail.size, tail.sha256)


def refuse_unsupported(path: Location, columns: Sequence[str], name: str) -> None:
    """Refuse a file that is sound and cannot be read here: compressed by LZO, say.

    Only its first page tells: pyarrow aborts the process when it is asked for the codec of a
    damaged column entry.

    Args:
        path: a file whose footer is sound.
        columns: which ones to try.
        name: what to call the file in messages.

    Raises:
        InputError: the file needs what pyarrow has not.
    """
    try:
        with open_regular(path, display(name)) as file:
            next(open_parquet(file).iter_batches(1, columns=columns, use_threads=False), None)
    except (OSError, pa.ArrowException, ValueError, RuntimeError) as error:
        if advice_on(error) is _UNSUPPORTED:
            raise InputError(
                f"{display(name)}: cannot be read ({_first_line(error)}): {_UNSUPPORTED}"
            ) from error
        # Anything else is a damaged page: reported with its row group when its turn comes.


def advice_on(error: BaseException) -> str:
    """Return what to do about data that cannot be read."""
    return _UNSUPPORTED if _NEEDS_MORE.search(str(error)) else DAMAGED


def read_tail(file: BinaryIO, name: str) -> Tail:
    """Check a file's first and last bytes and hash its footer.

    Raises:
        InputError: no Parquet file, encrypted, or without a footer that fits into it.
    """
    size = file.seek(0, os.SEEK_END)
    if size < _SMALLEST_FILE:
        raise InputError(f"{name}: {size} bytes, too short for a Parquet file: {DAMAGED}")
    file.seek(0)
    head = file.read(len(_MAGIC))
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    if _ENCRYPTED_MAGIC in (head, tail[4:]):
        raise InputError(f"{name}: the file is {_ENCRYPTED}")
    if head != _MAGIC:
        raise InputError(
            f"{name}: not a Parquet file, it starts with {head!r}; convert it to Parquet or take "
            "it out of the input"
        )
    if tail[4:] != _MAGIC:
        raise InputError(
            f"{name}: the file has no footer: it is incomplete or still being written; "
            "wait for its writer or take it out of the input"
        )
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL_BYTES - length
    if start < len(_MAGIC):
        raise InputError(
            f"{name}: its last bytes claim a footer of {length} bytes, the file has {size}: "
            f"{DAMAGED}"
        )
    file.seek(start)
    return Tail(size, length, _sha256(file, length))


def _sha256(file: BinaryIO, length: int) -> str:
    digest = hashlib.sha256()
    while length > 0 and (piece := file.read(min(length, _READ_BUFFER_BYTES))):
        digest.update(piece)
        length -= len(piece)
    return digest.hexdigest()


def _row_group(group: pq.RowGroupMetaData, index: int, name: str) -> RowGroup:
    # The group's columns are not looked at: pyarrow aborts the process on a damaged or encrypted
    # column entry, while reading the column later raises an ordinary exception.
    if group.num_rows < 0 or group.total_byte_size < 0:
        raise InputError(
            f"{name}: row group {index} counts {group.num_rows} rows and "
            f"{group.total_byte_size} bytes: {DAMAGED}"
        )
    return RowGroup(group.num_rows, group.total_byte_size)


def _refuse_encrypted_columns(parquet: pq.ParquetFile, footer_length: int, name: str) -> None:
    """Refuse a file whose footer is readable and signed while columns are encrypted."""
    if footer_length == parquet.metadata.serialized_size or not parquet.metadata.num_row_groups:
        return
    try:
        next(parquet.iter_batches(1, row_groups=[0], use_threads=False), None)
    except OSError as error:
        if "decrypt" in str(error).lower():
            raise InputError(f"{name}: columns of the file are {_ENCRYPTED}") from error
        # Anything else is a damaged page: reported with its row group when its turn comes.


def _unreadable(name: str, error: Exception) -> InputError:
    if isinstance(error, OSError) and error.strerror:
        return InputError(
            f"{name}: cannot be read ({error.strerror}); check that it exists and is readable"
        )
    if "encrypt" in str(error).lower():
        return InputError(f"{name}: the file is {_ENCRYPTED}")
    return InputError(f"{name}: the footer cannot be read ({_first_line(error)}): {DAMAGED}")


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]

"""The header of one GGUF file: metadata and tensor table.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from dataclasses import dataclass
from math import prod

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from worker.errors import GGUFError, UnsupportedModelError

from .cursor import Cursor
from .magic import read_version
from .mapped_file import MappedFile
from .metadata import GGUFMetadata, Metadata
from .quant_types import quant_block, supported_names
from .tensor_info import TensorInfo
from .value import Entry, decode_value, scan_value
from .wording import shown

ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
# Every pair and every tensor begins with the length of its name. No more is counted in, so that a
# count that is possible is believed and the record that is cut off can be named.
_MIN_RECORD_BYTES = 8
_LONGEST_NAME = 1024  # bytes of a tensor's name, when guessing whether there is one


@dataclass(frozen=True, slots=True)
class Header:
    """What the front of a file says; tensor offsets count from the start of the file."""

    version: int
    metadata: Metadata
    alignment: int
    tensors: tuple[TensorInfo, ...]
    data_start: int


def read_header(file: MappedFile, shard: int = 0) -> Header:
    """Read and check everything in front of the tensor data.

    Raises:
        GGUFError: the file is no sound GGUF file up to here.
        UnsupportedModelError: a tensor has a type that this format version does not define.
    """
    version = read_version(file)
    cursor = Cursor(file, 8)
    n_tensors = cursor.u64("the tensor count")
    n_pairs = cursor.u64("the metadata key count")
    _check_count(cursor, "tensor count", n_tensors)
    _check_count(cursor, "metadata key count", n_pairs)
    entries = _read_entries(cursor, file, n_pairs)
    metadata = GGUFMetadata(file, entries)
    alignment = _alignment(metadata)
    table = _read_table(cursor, n_tensors, shard)
    _check_table_end(file, cursor.position, n_tensors)
    data_start = -(-cursor.position // alignment) * alignment
    tensors = tuple(_placed(info, data_start) for info in table.values())
    return Header(version, metadata, alignment, tensors, data_start)


def _check_count(cursor: Cursor, what: str, count: int) -> None:
    most = cursor.remaining // _MIN_RECORD_BYTES
    if count > most:
        raise GGUFError(
            f"{cursor.path}: the {what} is {count}, but the file is too small for it: "
            f"{cursor.size} bytes hold at most {most}; copy or download the file again"
        )


def _read_entries(cursor: Cursor, file: MappedFile, count: int) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for index in range(count):
        key = _name(cursor, f"metadata key {index}")
        entry = scan_value(cursor, file, key)
        if key in entries:
            values = [shown(decode_value(file, key, each), 40) for each in (entries[key], entry)]
            raise GGUFError(
                f"{cursor.path}: key {shown(key)} is there twice, with the values {values[0]} and "
                f"{values[1]}; remove one of them or convert the model again"
            )
        entries[key] = entry
    return entries


def _name(cursor: Cursor, what: str) -> str:
    raw = cursor.string(what)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise GGUFError(
            f"{cursor.path}: the name of {what} is not valid UTF-8 (found {shown(raw)}); the file "
            "is damaged: copy or download the file again"
        ) from None


def _alignment(metadata: Metadata) -> int:
    if ALIGNMENT_KEY not in metadata:
        return DEFAULT_ALIGNMENT
    stored = metadata.describe(ALIGNMENT_KEY)
    value = metadata[ALIGNMENT_KEY] if stored == GGUFValueType.UINT32.name.lower() else None
    if not isinstance(value, int) or value <= 0 or value & (value - 1):
        found = shown(metadata[ALIGNMENT_KEY], 40)
        raise GGUFError(
            f"{metadata.path}: key {ALIGNMENT_KEY} is {found} ({stored}), expected a power of two "
            f"above 0 (uint32, {DEFAULT_ALIGNMENT} as a rule); convert the model again"
        )
    return value


def _read_table(cursor: Cursor, count: int, shard: int) -> dict[str, TensorInfo]:
    table: dict[str, TensorInfo] = {}
    for index in range(count):
        name = _name(cursor, f"tensor {index}")
        info = _read_info(cursor, name, shard)
        if name in table:
            raise GGUFError(
                f"{cursor.path}: tensor {shown(name)} is there twice, with the shapes "
                f"{table[name].shape} and {info.shape}; convert the model again"
            )
        table[name] = info
    return table


def _check_table_end(file: MappedFile, position: int, count: int) -> None:
    """Refuse a table that goes on behind the last tensor counted: data would be sought there."""
    ahead = Cursor(file, position)
    try:
        is_name = 0 < ahead.u64("the length of a name") <= _LONGEST_NAME
        ahead.position = position
        name = _name(ahead, "the next tensor") if is_name else ""
        if name:
            _read_info(ahead, name, 0)
    except (GGUFError, UnsupportedModelError):
        return  # padding, data or the end of the file, as it should be
    if name:
        raise GGUFError(
            f"{file.path}: the tensor count is {count}, but another tensor, {shown(name)}, follows "
            "the last one; the file is damaged: copy or download the file again"
        )


def _read_info(cursor: Cursor, name: str, shard: int) -> TensorInfo:
    what = f"tensor {shown(name)}"
    n_dimensions = cursor.u32(f"the number of dimensions of {what}")
    if not 1 <= n_dimensions <= MAX_DIMENSIONS:
        raise GGUFError(
            f"{cursor.path}: {what} has {n_dimensions} dimensions, expected 1 to "
            f"{MAX_DIMENSIONS}; the file is damaged: copy or download the file again"
        )
    dimensions = [cursor.u64(f"the dimensions of {what}") for _ in range(n_dimensions)]
    while len(dimensions) > 2 and dimensions[-1] == 1:
        dimensions.pop()  # some writers fill up to four dimensions
    qtype = _known_type(cursor, what)
    offset = cursor.u64(f"the offset of {what}")
    _check_dimensions(cursor, what, dimensions, qtype)
    return TensorInfo(name, tuple(reversed(dimensions)), qtype, offset, shard)


def _known_type(cursor: Cursor, what: str) -> GGMLQuantizationType:
    number = cursor.u32(f"the type of {what}")
    try:
        qtype = GGMLQuantizationType(number)
        GGML_QUANT_SIZES[qtype]
    except (ValueError, KeyError):
        raise UnsupportedModelError(
            f"{cursor.path}: {what} is of type {number}, which is not known; supported types: "
            f"{supported_names()}. Re-quantise with one of these."
        ) from None
    return qtype


def _check_dimensions(
    cursor: Cursor, what: str, dimensions: list[int], qtype: GGMLQuantizationType
) -> None:
    n_values = prod(dimensions)
    if not 0 < n_values < 1 << 63:
        raise GGUFError(
            f"{cursor.path}: {what} has the dimensions {dimensions}, which make {n_values} values, "
            "expected 1 to 2^63 - 1; the file is damaged: copy or download the file again"
        )
    block = quant_block(qtype)[0]
    if dimensions[0] % block:
        raise GGUFError(
            f"{cursor.path}: {what} has rows of {dimensions[0]} values (dimensions {dimensions}), "
            f"which is no multiple of the {block} values of a {qtype.name} quant block; "
            "convert the model again"
        )


def _placed(info: TensorInfo, data_start: int) -> TensorInfo:
    return TensorInfo(info.name, info.shape, info.qtype, data_start + info.offset, info.shard)

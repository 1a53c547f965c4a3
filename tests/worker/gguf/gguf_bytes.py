"""A small GGUF writer that can also write what no writer should."""

import struct
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_FORMATS = dict(zip(range(13), "BbHhIif?xxQqd", strict=True))


def text(value: str | bytes) -> bytes:
    """A string: its length, then its bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def scalar(kind: int, value: object) -> bytes:
    """A value without its type."""
    if kind == STRING:
        return text(value)
    return struct.pack("<" + _FORMATS[kind], value)


def pair(key: str | bytes, kind: int, value: object) -> bytes:
    """A metadata key with a scalar value."""
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key: str, kind: int, values: list, count: int | None = None) -> bytes:
    """A metadata key with an array; ``count`` overrides the true number of elements."""
    head = struct.pack("<IIQ", ARRAY, kind, len(values) if count is None else count)
    return text(key) + head + b"".join(scalar(kind, value) for value in values)


def tensor(name: str | bytes, dimensions: list[int], qtype: int, offset: int) -> bytes:
    """A line of the tensor table; dimensions in the file's order, fastest first."""
    head = text(name) + struct.pack("<I", len(dimensions))
    return head + struct.pack(f"<{len(dimensions)}QIQ", *dimensions, qtype, offset)


ARCHITECTURE = pair("general.architecture", STRING, "llama")


def gguf(
    pairs: list[bytes] = (),
    tensors: list[bytes] = (),
    data: bytes = b"",
    *,
    architecture: bytes = ARCHITECTURE,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; ``counts`` overrides the true numbers of tensors and pairs."""
    pairs = [architecture, *pairs] if architecture else list(pairs)
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs)
    head += b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def write(folder: Path, content: bytes, name: str = "model.gguf") -> Path:
    """Write the file and return its path."""
    path = folder / name
    path.write_bytes(content)
    return path

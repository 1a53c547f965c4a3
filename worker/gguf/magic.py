"""The first bytes: is this a GGUF file, and if not, what is it?"""

from worker.errors import GGUFError

from .mapped_file import MappedFile

MAGIC = b"GGUF"
VERSIONS_READ = (2, 3)
_BIG_ENDIAN_FIX = "numbers are stored big-endian: convert the file to little-endian"
_FETCH = "fetch the file itself"

_KINDS: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs",
        f"this is a Git LFS pointer, not the model: {_FETCH} (git lfs pull)",
    ),
    (b"PK\x03\x04", "this is a ZIP archive (or a PyTorch checkpoint): unpack or convert it"),
    (b"\x1f\x8b", "this is a gzip archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "this is a zstd archive: unpack it"),
    (b"\xfd7zXZ", "this is an xz archive: unpack it"),
    (b"BZh", "this is a bzip2 archive: unpack it"),
    (b"7z\xbc\xaf", "this is a 7z archive: unpack it"),
    (b"\x80\x02", "this is a Python pickle: convert the model to GGUF"),
    (b"\x89HDF", "this is an HDF5 file: convert the model to GGUF"),
    (b"PAR1", "this is a Parquet file: name the model instead"),
    (b"lmgg", "this is a model of the older GGML format: convert it to GGUF"),
    (b"fmgg", "this is a model of the older GGMF format: convert it to GGUF"),
    (b"tjgg", "this is a model of the older GGJT format: convert it to GGUF"),
    (b"FUGG", f"this is a GGUF file whose {_BIG_ENDIAN_FIX}"),
    (b"\0\0\0\0", "it starts with zeros, as a download that was never finished: download it again"),
)


def read_version(file: MappedFile) -> int:
    """Check magic and version; return the version.

    Raises:
        GGUFError: another kind of file, a version that is not read, or a big-endian file.
    """
    head = file.bytes[:512].tobytes()
    if head[:4] != MAGIC:
        raise GGUFError(
            f"{file.path}: the first bytes are {head[:8]!r}, expected the GGUF magic {MAGIC!r}; "
            f"{_kind(head)}"
        )
    if len(head) < 8:
        raise GGUFError(
            f"{file.path}: the file ends after {file.size} bytes, before the version; "
            "copy or download the file again"
        )
    version = int.from_bytes(head[4:8], "little")
    if version not in VERSIONS_READ:
        raise GGUFError(f"{file.path}: {_version_problem(version)}")
    return version


def _kind(head: bytes) -> str:
    for start, message in _KINDS:
        if head.startswith(start):
            return message
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!do", b"<htm", b"<head", b"<?xml", b"<!--")):
        return f"this is an HTML page, {_FETCH}"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "this is a safetensors file: convert the model to GGUF"
    if text.startswith((b"{", b"[")):
        return f"this is a JSON text: {_FETCH}"
    if head.isascii() and head.decode().replace("\n", " ").replace("\r", " ").isprintable():
        return f"this is a text file: {_FETCH}"
    return "this is no GGUF file: check the path, copy or download the file again"


def _version_problem(version: int) -> str:
    read = " and ".join(map(str, VERSIONS_READ))
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version > 0xFFFF and swapped <= 0xFFFF:
        return f"GGUF version {swapped}, but the {_BIG_ENDIAN_FIX} (gguf-convert-endian)"
    fix = "take a newer tokenmill or convert the model again"
    if version < min(VERSIONS_READ):
        fix = "convert the model again with a current converter"
    return f"GGUF version {version} is not read, only versions {read}; {fix}"

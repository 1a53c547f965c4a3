"""What the first bytes tell."""

import gzip
import struct

import pytest

from worker.errors import GGUFError
from worker.gguf import GGUFFile

from .gguf_bytes import gguf, write

KINDS = {
    b"<html><body>not found</body></html>": "HTML page, fetch the file itself",
    b"\n  <!DOCTYPE html>": "HTML page, fetch the file itself",
    b"<?xml version='1.0'?><Error>AccessDenied</Error>": "HTML page, fetch the file itself",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n": "Git LFS pointer",
    b"PK\x03\x04" + b"\0" * 40: "ZIP archive",
    gzip.compress(b"GGUF", mtime=0): "gzip archive",
    struct.pack("<Q", 16) + b'{"a":{"dtype":1}': "safetensors file",
    b"\x80\x02ctorch": "Python pickle",
    b"tjgg" + b"\0" * 20: "older GGJT format",
    b"FUGG" + b"\0" * 20: "big-endian",
    b'{"error": "Repository not found"}': "JSON text",
    b"Invalid username or password.": "text file",
    b"\0" * 64: "never finished",
    b"\x7fELF\x02\x01\x01\0": "no GGUF file",
    b"G": "text file",
}


@pytest.mark.parametrize("content", KINDS)
def test_another_kind_of_file_is_recognised(tmp_path, content):
    """The message shows the bytes found, those expected, and what the file seems to be."""
    with pytest.raises(GGUFError) as caught:
        GGUFFile.open(write(tmp_path, content))
    message = str(caught.value)
    assert f"the first bytes are {content[:8]!r}, expected the GGUF magic b'GGUF'" in message
    assert KINDS[content] in message


@pytest.mark.parametrize("version", [2, 3])
def test_versions_2_and_3_are_read(tmp_path, version):
    """Both versions of the format with 64-bit counts open."""
    assert version == GGUFFile.open(write(tmp_path, gguf(version=version))).version


@pytest.mark.parametrize("version", [0, 1, 4, 0x7FFFFFFF])
def test_other_versions_are_refused(tmp_path, version):
    """The version found and the versions read are both named."""
    with pytest.raises(GGUFError, match=f"version {version} is not read, only versions 2 and 3"):
        GGUFFile.open(write(tmp_path, gguf(version=version)))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_big_endian_files_are_recognised(tmp_path, version):
    """A byte-swapped version is named as what it is."""
    content = b"GGUF" + struct.pack(">IQQ", version, 0, 0)
    with pytest.raises(GGUFError, match=f"version {version}.*big-endian.*little-endian"):
        GGUFFile.open(write(tmp_path, content))


@pytest.mark.parametrize("n_bytes", [4, 6, 7, 8, 12, 23])
def test_a_file_cut_off_in_its_first_fields_is_refused(tmp_path, n_bytes):
    """Each cut inside version and counts is told as missing bytes."""
    with pytest.raises(GGUFError, match="copy or download the file again"):
        GGUFFile.open(write(tmp_path, gguf()[:n_bytes]))

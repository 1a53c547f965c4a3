"""Opening and mapping files."""

import errno
import hashlib
import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest

from worker.errors import GGUFError
from worker.gguf.mapped_file import MappedFile


def test_a_missing_file_is_named(tmp_path):
    """The path is in the message."""
    with pytest.raises(GGUFError, match=r"gone\.gguf: cannot be opened: no such file"):
        MappedFile(tmp_path / "gone.gguf")


def test_a_dangling_link_is_told_with_its_target(tmp_path):
    """A link whose target was removed is not called missing itself."""
    (tmp_path / "model.gguf").symlink_to("blob")
    with pytest.raises(GGUFError, match="a link to blob, which does not exist"):
        MappedFile(tmp_path / "model.gguf")


def test_an_empty_file_is_refused(tmp_path):
    """No bytes, no model."""
    (tmp_path / "model.gguf").touch()
    with pytest.raises(GGUFError, match=r"empty \(0 bytes\)"):
        MappedFile(tmp_path / "model.gguf")


def test_a_folder_is_refused_with_the_models_in_it(tmp_path):
    """The user sees which file to name."""
    (tmp_path / "a.gguf").touch()
    with pytest.raises(GGUFError, match=r"this is a folder.*a\.gguf"):
        MappedFile(tmp_path)


def test_a_pipe_is_refused_without_waiting(tmp_path):
    """Opening a pipe nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(GGUFError, match="no regular file"):
        MappedFile(tmp_path / "pipe.gguf")


def test_an_unreadable_file_is_told_as_such(tmp_path, monkeypatch):
    """Permissions are named (denied here by hand: root may read every file)."""

    def denied(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(GGUFError, match=r"model\.gguf: cannot be opened: no permission to read"):
        MappedFile(tmp_path / "model.gguf")


def test_bytes_are_those_of_the_file_and_read_only(tmp_path):
    """The map shows the file and cannot be written."""
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(256)))
    mapped = MappedFile(path)
    assert (256, bytes(range(256))) == (mapped.size, mapped.bytes.tobytes())
    assert not mapped.bytes.flags.writeable


@pytest.mark.parametrize("start", [0, 1, mmap.PAGESIZE - 1, mmap.PAGESIZE])
def test_released_pages_read_the_same_again(tmp_path, start):
    """Giving pages back loses nothing, at any offset and length."""
    content = np.random.default_rng(0).integers(0, 256, 3 * mmap.PAGESIZE + 7, np.uint8).tobytes()
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    mapped = MappedFile(path)
    assert content == mapped.bytes.tobytes()
    mapped.release(start, len(content) - start)
    assert content == mapped.bytes.tobytes()


def _resident_pages(path):
    """Pages of a file's maps that this process has in memory now."""
    own = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    assert own, "the file is not mapped"
    kib = [int(re.search(r"^Rss: +(\d+) kB$", part, re.MULTILINE)[1]) for part in own]
    return sum(kib) * 1024 // mmap.PAGESIZE


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc/self/smaps")
@pytest.mark.parametrize(
    ("start", "end", "left"), [(0, 64, 0), (1, 64, 1), (0.5, 63.5, 2), (3, 5, 62), (3.5, 4.5, 64)]
)
def test_released_pages_leave_memory(tmp_path, start, end, left):
    """Whole pages within the range are given back to the system, and no others."""
    path, page = tmp_path / "model.gguf", mmap.PAGESIZE
    path.write_bytes(bytes(64 * page))
    mapped = MappedFile(path)
    mapped.bytes.sum()
    assert 64 == _resident_pages(path)
    begin = int(start * page)
    mapped.release(begin, int(end * page) - begin)
    assert left == _resident_pages(path)


def _touched(path):
    path.write_bytes(b"other")  # as long as before


def _cut(path):
    os.truncate(path, 2)


def _grown(path):
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("change", [_touched, _cut, _grown])
def test_a_file_changed_in_place_is_noticed(tmp_path, change):
    """Reading on would mix two models, or end the process by a signal."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"bytes")
    os.utime(path, (1, 1))
    mapped = MappedFile(path)
    mapped.check_unchanged()
    change(path)
    with pytest.raises(GGUFError, match=r"model\.gguf: the file was changed.* 5 bytes when"):
        mapped.check_unchanged()


def test_a_file_replaced_or_removed_is_read_on(tmp_path):
    """Another file under the same name is not the one that is mapped."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"bytes")
    mapped = MappedFile(path)
    (tmp_path / "new").write_bytes(b"other, longer")
    (tmp_path / "new").replace(path)
    mapped.check_unchanged()
    path.unlink()
    mapped.check_unchanged()
    assert b"bytes" == mapped.bytes.tobytes()


def test_the_descriptor_is_closed_with_the_map(tmp_path):
    """Opening models again and again leaves nothing open."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"bytes")
    descriptor = MappedFile(path)._descriptor
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_hash_is_that_of_the_file_that_is_mapped(tmp_path, monkeypatch):
    """Not of another one that has taken its name since; nor is that one's hash got wrong."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"bytes")
    mapped = MappedFile(path)
    (tmp_path / "new").write_bytes(b"other")
    (tmp_path / "new").replace(path)
    assert [hashlib.sha256(b"bytes").hexdigest()] * 2 == [mapped.sha256(), mapped.sha256()]
    assert hashlib.sha256(b"other").hexdigest() == MappedFile(path).sha256()


def test_a_file_whose_disk_fails_is_named(tmp_path, monkeypatch):
    """The hash cannot be had; the reason is in the message."""

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    path = tmp_path / "model.gguf"
    path.write_bytes(b"bytes")
    mapped = MappedFile(path)
    monkeypatch.setattr("worker.gguf.mapped_file.open_file_sha256", fail)
    with pytest.raises(GGUFError, match=r"model\.gguf: cannot be read: Input/output error"):
        mapped.sha256()

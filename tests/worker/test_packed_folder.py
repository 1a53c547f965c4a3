"""The folder of packed files: its list and its limit."""

import os
import shutil
from collections import namedtuple

import pytest

from worker.file_in_use import hold_shared
from worker.packed_folder import NoRoomError, PackedFolder, remove_unused
from worker.packed_index import PackedIndex

from .packed_models import NAMES, open_model

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder's."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return PackedFolder()


def _put(folder, name, n_bytes, last_used_s):
    folder.path.mkdir(parents=True, exist_ok=True)
    path = folder.path_of(name)
    path.write_bytes(bytes(n_bytes))
    os.utime(path, (1, last_used_s))
    return path


def _names(folder):
    return [info.path.stem for info in folder.files()]


def test_files_are_listed_by_use(folder, tmp_path):
    """With size, time and the model's name; other files are not listed."""
    index = PackedIndex.of(open_model(tmp_path, name="m.gguf"), NAMES)
    _put(folder, "bad", 10, 300)
    path = _put(folder, "good", 0, 0)
    path.write_bytes(index.header + bytes(index.n_bytes))
    os.utime(path, (1, 200))
    (folder.path / ".lock").touch()
    found = [(f.path.stem, f.n_bytes, f.last_used_s, f.model, f.in_use) for f in folder.files()]
    expected = [("bad", 10, 300, None, False), ("good", index.file_bytes, 200, "m.gguf", False)]
    assert expected == found


def test_a_folder_that_is_not_there_is_empty(folder):
    """Nothing was packed yet."""
    assert [] == folder.files()
    assert not folder.path.exists()


def test_the_default_limit_is_half_of_the_free_disk(folder, monkeypatch):
    """Packed files count as free; a folder not made yet is judged by the one above it."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1000, 0, 100))
    assert 50 == folder.limit()
    _put(folder, "a", 300, 1)
    assert 200 == folder.limit()


def test_a_limit_that_was_set_is_kept(folder):
    """For every process, until it is taken back."""
    folder.set_limit(1000)
    assert (1000, 1000) == (folder.limit(), PackedFolder().chosen_limit())
    folder.set_limit(None)
    folder.set_limit(None)
    assert PackedFolder().chosen_limit() is None


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_damaged_limit_is_told(folder, caplog, content):
    """The default holds."""
    folder.set_limit(1)
    (folder.path.parent / "packed-limit.json").write_bytes(content)
    assert folder.chosen_limit() is None
    assert "set the limit again" in caplog.text


def test_room_is_made_by_the_files_used_least_recently(folder):
    """As many as needed, the oldest first."""
    for name, last_used_s in (("a", 1), ("c", 3), ("b", 2), ("d", 4)):
        _put(folder, name, 100, last_used_s)
    folder.set_limit(420)
    folder.make_room(20)
    assert ["d", "c", "b", "a"] == _names(folder)
    folder.make_room(180)
    assert ["d", "c"] == _names(folder)


def test_files_in_use_stay(folder):
    """Even when they are the oldest ones."""
    old = _put(folder, "old", 100, 1)
    _put(folder, "new", 100, 2)
    folder.set_limit(250)
    with old.open("rb") as file:
        hold_shared(file)
        folder.make_room(100)
        assert ["old"] == _names(folder)
        with pytest.raises(NoRoomError, match=r"200 bytes are .* 250 in all, of which 100 are in"):
            folder.make_room(200)
        assert not remove_unused(old)
    assert remove_unused(old)


def test_nothing_is_removed_in_vain(folder):
    """A file that is too large in any case costs no other its place."""
    _put(folder, "a", 100, 1)
    folder.set_limit(150)
    with pytest.raises(NoRoomError, match=r"151 bytes are more than .* 150 in all; raise it with"):
        folder.make_room(151)
    assert ["a"] == _names(folder)


def test_leftovers_of_killed_writers_are_removed(folder):
    """Whoever holds the lock is the only writer."""
    folder.path.mkdir(parents=True)
    (folder.path / ".writing-x.packed").touch()
    with folder.writing():
        assert [".lock"] == [path.name for path in folder.path.iterdir()]

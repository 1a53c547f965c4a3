"""Files that notice their own damage."""

import logging
import os
import resource
import signal

import pytest

from worker.checked_file import read_checked, write_checked


def test_what_is_written_is_read(tmp_path):
    """Content of any length comes back, and a second file replaces the first."""
    path = tmp_path / "new" / "file"
    for content in (b"", b"one", bytes(range(256)) * 1000):
        write_checked(path, content)
        assert content == read_checked(path)
    assert [path] == list(path.parent.iterdir())


def test_a_missing_file_is_none(tmp_path):
    """Nothing was kept yet."""
    assert read_checked(tmp_path / "file") is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", bytes.swapcase]
)
def test_damage_is_noticed(tmp_path, damage, caplog):
    """A file that was cut, emptied or changed is as good as none, and a message names it."""
    path = tmp_path / "file"
    write_checked(path, b"the content")
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert read_checked(path) is None
    assert f"{path} is damaged" in caplog.text


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A failed write is an error and leaves no temporary file."""
    path = tmp_path / "file"
    write_checked(path, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_checked(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert b"old" == read_checked(path)
    assert [path] == list(tmp_path.iterdir())


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    """Only a file that is not there counts as none."""
    with pytest.raises(IsADirectoryError):
        read_checked(tmp_path)


def test_files_are_for_whom_the_umask_says(tmp_path):
    """What root warms in a container image, another user can read."""
    before = os.umask(0o022)
    try:
        write_checked(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert 0o644 == (tmp_path / "file").stat().st_mode & 0o777

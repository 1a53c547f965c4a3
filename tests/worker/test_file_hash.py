"""Hashes of files, kept in the cache folder."""

import hashlib
import os

import pytest

from worker.file_hash import file_sha256


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_a_file_is_read_once(cache, tmp_path, monkeypatch):
    """The second call takes the hash from the cache folder."""
    path = tmp_path / "f"
    path.write_bytes(b"content")
    assert _sha256(b"content") == file_sha256(path)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert _sha256(b"content") == file_sha256(str(path))


@pytest.mark.parametrize("change", ["size", "mtime", "inode"])
def test_a_changed_file_is_read_again(cache, tmp_path, change):
    """Size, modification time and inode each tell a change."""
    path = tmp_path / "f"
    path.write_bytes(b"content")
    file_sha256(path)
    before = path.stat()
    new = b"longer content" if change == "size" else b"CONTENT"
    if change == "inode":
        (tmp_path / "g").write_bytes(new)
        (tmp_path / "g").replace(path)
    else:
        path.write_bytes(new)
    mtime = before.st_mtime_ns + (change == "mtime")
    os.utime(path, ns=(before.st_atime_ns, mtime))
    assert _sha256(new) == file_sha256(path)


@pytest.mark.parametrize("damage", [b"", b"\xff", b"0" * 129])
def test_a_damaged_record_is_ignored(cache, tmp_path, damage):
    """A record that a crash cut short costs time and nothing else."""
    path = tmp_path / "f"
    path.write_bytes(b"content")
    file_sha256(path)
    (record,) = (cache / "hashes").iterdir()
    record.write_bytes(damage)
    assert _sha256(b"content") == file_sha256(path)


def test_a_cache_that_cannot_be_written_does_not_stop_the_run(cache, tmp_path, caplog):
    """The hash is right, and a warning says that it cannot be kept."""
    cache.write_text("a file, not a folder")
    path = tmp_path / "f"
    path.write_bytes(b"content")
    assert _sha256(b"content") == file_sha256(path)
    assert "cannot remember the hash" in caplog.text


def test_a_file_changed_while_it_is_hashed_is_not_remembered(cache, tmp_path, monkeypatch):
    """The next call reads it again."""
    path = tmp_path / "f"
    path.write_bytes(b"content")
    real = hashlib.file_digest

    def change(file, name):
        digest = real(file, name)
        path.write_bytes(b"longer content")
        return digest

    monkeypatch.setattr(hashlib, "file_digest", change)
    file_sha256(path)
    monkeypatch.setattr(hashlib, "file_digest", real)
    assert _sha256(b"longer content") == file_sha256(path)


def test_a_name_that_leads_to_the_same_file_finds_its_hash(cache, tmp_path, monkeypatch):
    """Links are resolved."""
    path, link = tmp_path / "f", tmp_path / "link"
    path.write_bytes(b"content")
    link.symlink_to(path)
    file_sha256(path)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert _sha256(b"content") == file_sha256(link)

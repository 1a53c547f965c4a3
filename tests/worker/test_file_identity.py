"""Which file something was derived from."""

import os

import pytest

from worker.file_identity import FileIdentity


def test_the_same_file_is_known_by_every_name(tmp_path):
    """A symbolic link and a detour give the identity of the file itself."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"four")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(file)
    identity = FileIdentity.of(file)
    assert (file.resolve(), 4) == (identity.path, identity.size)
    assert identity == FileIdentity.of(tmp_path / "link")
    assert identity == FileIdentity.of(str(tmp_path / "folder" / ".." / "model.gguf"))
    with file.open("rb") as stream:
        assert identity == FileIdentity.of_open(tmp_path / "link", stream)


def test_each_part_of_the_identity_changes_the_digest(tmp_path):
    """Path, size, time and inode each give another digest."""
    file = tmp_path / "a"
    file.write_bytes(b"four")
    first = FileIdentity.of(file)
    digests = [first.digest]
    os.utime(file, ns=(1, first.mtime_ns + 1))
    digests.append(FileIdentity.of(file).digest)
    with file.open("ab") as stream:
        stream.write(b"!")
    os.utime(file, ns=(1, first.mtime_ns))
    digests.append(FileIdentity.of(file).digest)
    other = FileIdentity(tmp_path / "b", first.size, first.mtime_ns, first.inode)
    moved = FileIdentity(first.path, first.size, first.mtime_ns, first.inode + 1)
    digests += [other.digest, moved.digest]
    assert 5 == len(set(digests))
    assert {64} == set(map(len, digests))


def test_a_missing_file_has_no_identity(tmp_path):
    """Asking for it is an error of the system, with the file's name."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FileIdentity.of(tmp_path / "nowhere")

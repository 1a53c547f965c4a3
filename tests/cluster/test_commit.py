import errno
import fcntl
import hashlib
import os
import signal
from pathlib import Path

import pytest

from cluster import commit
from cluster.commit import commit_json, committed_file, temporary_path
from cluster.errors import JobStoppedError


def names_in(folder):
    """Names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def test_a_committed_file_has_its_content_size_and_hash(tmp_path):
    """What was written is there under the final name, and nothing else."""
    with committed_file(tmp_path / "x.bin") as file:
        file.write(b"hello ")
        file.write(memoryview(b"world"))
    assert b"hello world" == (tmp_path / "x.bin").read_bytes()
    assert (11, hashlib.sha256(b"hello world").hexdigest()) == (file.size, file.sha256)
    assert ["x.bin"] == names_in(tmp_path)


def test_the_bytes_are_on_the_disk_before_the_name_and_the_name_before_we_go_on(
    tmp_path, monkeypatch
):
    """The order is fsync of the file, rename, fsync of the folder."""
    steps = []
    real_sync, real_rename, real_folder = commit.sync, Path.rename, commit.sync_folder
    monkeypatch.setattr(commit, "sync", lambda fd: (steps.append("sync"), real_sync(fd)))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (steps.append("rename"), real_rename(path, to))
    )
    monkeypatch.setattr(commit, "sync_folder", lambda f: (steps.append("folder"), real_folder(f)))
    commit_json(tmp_path / "x.json", {})
    assert ["sync", "rename", "folder"] == steps


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (None, ["full sync"]),
        (errno.ENOTSUP, ["full sync", "fsync"]),
        (errno.EINVAL, ["full sync", "fsync"]),
    ],
    ids=["own disk", "network volume", "other volume"],
)
def test_on_a_mac_bytes_are_brought_to_the_disk_itself(tmp_path, monkeypatch, refusal, expected):
    """An fsync leaves them in its cache there; volumes without F_FULLFSYNC get one all the same."""
    steps = []

    def full_sync(_, command):
        assert 51 == command
        steps.append("full sync")
        if refusal is not None:
            raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(commit, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(commit, "sync_folder", lambda _: None)
    monkeypatch.setattr(os, "fsync", lambda _: steps.append("fsync"))
    commit_json(tmp_path / "x.json", {})
    assert expected == steps


def test_on_a_mac_a_disk_that_fails_to_sync_is_no_success(tmp_path, monkeypatch):
    """Any other refusal stops the job, and the file does not appear."""

    def full_sync(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(commit, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    with pytest.raises(JobStoppedError, match="cannot be written any more"):
        commit_json(tmp_path / "x.json", {})
    assert [] == names_in(tmp_path)


@pytest.mark.parametrize("step", ["write", "sync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_stops_the_job_and_keeps_the_old_file(tmp_path, monkeypatch, step, number):
    """The message names the folder and says no space left; the old file stays, no new one comes."""
    target = tmp_path / "x.json"
    commit_json(target, "old")

    def fail(*_):
        raise OSError(number, os.strerror(number))

    if step == "write":
        monkeypatch.setattr(commit.HashingFile, "write", fail)
    elif step == "sync":
        monkeypatch.setattr(commit, "sync", fail)
    else:
        monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(JobStoppedError) as caught:
        commit_json(target, "new")
    assert str(tmp_path) in str(caught.value)
    assert "no space left" in str(caught.value)
    assert (b'"old"', ["x.json"]) == (target.read_bytes(), names_in(tmp_path))


def test_storage_that_goes_away_stops_the_job(tmp_path):
    """A folder that is gone is a stop that names it, not a traceback."""
    with pytest.raises(JobStoppedError, match="cannot be written any more"):
        commit_json(tmp_path / "gone" / "x.json", {})


@pytest.mark.parametrize("step", ["write", "sync", "rename", "sync_folder"])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(tmp_path, step):
    """Kill -9 in the middle: the final name holds one whole file, leftovers hide from readers."""
    target = tmp_path / "x.json"
    commit_json(target, "old")
    pid = os.fork()
    if pid == 0:

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        owner = {"write": commit.HashingFile, "rename": Path}.get(step, commit)
        setattr(owner, step, die)
        commit_json(target, "new")
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert (b'"new"' if step == "sync_folder" else b'"old"') == target.read_bytes()
    leftovers = set(names_in(tmp_path)) - {"x.json"}
    assert leftovers <= {temporary_path(target).name}
    commit_json(target, "newer")
    assert (b'"newer"', ["x.json"]) == (target.read_bytes(), names_in(tmp_path))


def test_temporary_names_are_invisible_to_readers_of_parquet_folders():
    """They start with an underscore and match no ``*.parquet``."""
    name = temporary_path(Path("out/part-00000.parquet")).name
    assert name.startswith("_")
    assert not name.endswith(".parquet")

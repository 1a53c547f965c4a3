import errno
import fcntl
import os
import socket
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.commit import HashingFile
from cluster.errors import JobConfigError, JobStoppedError
from cluster.manifest import Manifest
from cluster.plan import CuttingRule
from cluster.run_directory import RunDirectory

MANIFEST = Manifest(
    fingerprint={"seed": 0}, inputs=[], cutting=CuttingRule(1, 2, 3), template_date="2026-01-01"
)


def names_in(folder):
    """Names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def refused(path, *names):
    """Check that claiming fails, says why, and changes nothing."""
    before = sorted(os.walk(path))
    with pytest.raises(JobConfigError) as caught:
        RunDirectory.claim(str(path))
    assert [] == [name for name in (str(path), *names) if name not in str(caught.value)]
    assert before == sorted(os.walk(path))


def test_a_finished_run_leaves_the_layout_and_nothing_else(tmp_path):
    """Lock and work folder are gone, the manifest can be read back."""
    with RunDirectory.claim(str(tmp_path / "out")) as run:
        run.begin(MANIFEST)
        run.finish(MANIFEST)
    assert ["_SUCCESS", "_manifest.json", "_stats"] == names_in(tmp_path / "out")
    assert MANIFEST == Manifest.read(tmp_path / "out" / "_manifest.json")


def test_foreign_files_are_refused_and_left_alone(tmp_path, data):
    """A folder with somebody else's Parquet files and notes: named, not touched."""
    (tmp_path / "notes.txt").write_text("mine")
    pq.write_table(pq.read_table(data / "cases/small.parquet"), tmp_path / "other.parquet")
    refused(tmp_path, "not empty", "not an output of tokenmill", "notes.txt", "choose another")


def test_a_foreign_manifest_is_refused(tmp_path):
    """Another program's ``_manifest.json`` does not make a folder ours."""
    (tmp_path / "_manifest.json").write_text('{"format": "theirs"}')
    refused(tmp_path, "not a manifest of tokenmill")


def test_a_file_as_output_is_refused(tmp_path):
    """The output is a folder."""
    (tmp_path / "out").touch()
    refused(tmp_path / "out", "not a folder")


def test_a_claim_tells_which_run_lies_there(tmp_path):
    """None at first, then one that is not finished, then one that is."""
    with RunDirectory.claim(str(tmp_path)) as run:
        assert (None, False) == (run.manifest, run.is_complete)
        run.begin(MANIFEST)
    with RunDirectory.claim(str(tmp_path)) as run:
        assert (MANIFEST, False) == (run.manifest, run.is_complete)
        run.finish(MANIFEST)
    with RunDirectory.claim(str(tmp_path)) as run:
        assert (MANIFEST, True) == (run.manifest, run.is_complete)
    assert ["_SUCCESS", "_manifest.json", "_stats"] == names_in(tmp_path)


def test_a_second_driver_is_refused_while_the_first_lives(tmp_path):
    """It is told on which host, as which process and since when the first one writes."""
    with RunDirectory.claim(str(tmp_path)):
        holder = (f"on {socket.gethostname()}", f"pid {os.getpid()}", f"since {date.today().year}")
        refused(tmp_path, "another driver", *holder)
    RunDirectory.claim(str(tmp_path)).release()


def test_a_lock_ends_with_its_process(tmp_path):
    """After kill -9 of the owner the folder can be claimed again."""
    pid = os.fork()
    if pid == 0:
        RunDirectory.claim(str(tmp_path))
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    with RunDirectory.claim(str(tmp_path)) as run, (tmp_path / "_lock").open("rb") as other:
        assert tmp_path == run.path
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_run_that_never_began_leaves_no_trace(tmp_path):
    """What fails before the manifest leaves neither folder nor lock."""
    RunDirectory.claim(str(tmp_path / "out")).release()
    assert [] == names_in(tmp_path)
    (tmp_path / "mine").mkdir()
    RunDirectory.claim(str(tmp_path / "mine")).release()
    assert [] == names_in(tmp_path / "mine")


def test_an_output_that_cannot_be_written_is_a_configuration_error(tmp_path):
    """A parent that is a file: named before anything starts."""
    (tmp_path / "file").touch()
    with pytest.raises(JobConfigError, match="cannot be written"):
        RunDirectory.claim(str(tmp_path / "file" / "out"))


def test_a_folder_that_a_finder_looked_into_counts_as_empty(tmp_path):
    """MacOS puts ``.DS_Store`` into folders."""
    (tmp_path / ".DS_Store").touch()
    RunDirectory.claim(str(tmp_path)).release()
    assert [".DS_Store"] == names_in(tmp_path)


def test_a_path_that_no_file_system_takes_is_a_configuration_error(tmp_path):
    """A name too long and a link to itself: named in one line."""
    (tmp_path / "loop").symlink_to("loop")
    for name in ("n" * 300, "loop/out"):
        with pytest.raises(JobConfigError, match=f"{name}: .*cannot be written"):
            RunDirectory.claim(str(tmp_path / name))


def test_a_full_disk_is_a_stop_from_the_first_file_on(tmp_path, monkeypatch):
    """Make room, and the same command goes on: exit 75, not 2."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(JobStoppedError, match="out: no space left"):
        RunDirectory.claim(str(tmp_path / "out"))


def test_a_disk_that_fills_up_before_the_manifest_leaves_no_trace(tmp_path, monkeypatch):
    """Once there is room, the same command must not take what is there for somebody else's."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(HashingFile, "write", full)
    run = RunDirectory.claim(str(tmp_path / "out"))
    with pytest.raises(JobStoppedError, match="no space left"), run:
        run.begin(MANIFEST)
    assert [] == names_in(tmp_path)


def test_a_committed_file_that_cannot_be_read_back_is_a_stop(tmp_path):
    """Storage that loses or changes what was committed: the file is named, no traceback."""
    with RunDirectory.claim(str(tmp_path / "out")) as run:
        run.begin(MANIFEST)
        path = run.shard_path(range(3))
        run.commit_arrow(path, pa.table({"x": [1]}))
        assert pa.table({"x": [1]}) == run.read_arrow(path)
        path.write_bytes(b"junk")
        with pytest.raises(JobStoppedError, match=f"{path.name}: was committed and cannot be read"):
            run.read_arrow(path)

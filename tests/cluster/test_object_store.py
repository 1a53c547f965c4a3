"""Runs whose input and output lie in an object store that speaks S3."""

import multiprocessing
import os
import random
import signal
import socket
from threading import Event

import pyarrow.dataset as ds
import pytest

from cluster import lease
from cluster.commit import committed_file
from cluster.dataset import InputDataset
from cluster.errors import InputError, JobConfigError, JobStoppedError
from cluster.input_columns import InputColumns
from cluster.input_files import find_input_files
from cluster.location import location
from cluster.object_path import ObjectStore
from cluster.run_directory import RunDirectory
from cluster.status import RunState, read_status
from tests.cluster.fake_job import run_fake_job
from tests.cluster.fake_pool import FakePool
from tests.cluster.s3_server import be_quick, use_credentials
from tests.cluster.test_resume import CUT, parts, stop_after
from worker.errors import ErrorKind

FINISHED = ["_SUCCESS", "_manifest.json", "_stats"]


@pytest.fixture
def source(data):
    """60 rows in six files."""
    return data / "cases/rows-60"


@pytest.fixture
def whole(source, tmp_path):
    """The run on this machine that nothing interrupts: summary and parts."""
    return run_fake_job(source, tmp_path / "whole", **CUT), parts(tmp_path / "whole")


def finished(bucket, key, whole, summary):
    """Check that the run in the bucket is the local one and left nothing besides."""
    assert whole[1] == bucket.parts(key)
    assert whole[0].checksum == summary.checksum
    assert sorted([*FINISHED, *whole[1]]) == bucket.names(key)


def test_a_run_gives_the_bytes_of_a_local_one(source, whole, bucket):
    """From a local input and from one in the store; readers of the folder see all rows."""
    bucket.upload(source, "in")
    origins = {"a": source, "b/c": bucket.uri("in"), "d": bucket.uri("in/*.parquet")}
    for key, origin in origins.items():
        summary = run_fake_job(origin, bucket.uri(key), **CUT)
        finished(bucket, key, whole, summary)
        assert f"s3://{bucket.name}/{key}" == summary.output
        place = bucket.path(key)
        table = ds.dataset(place.key, filesystem=place.store.files).to_table()
        assert [f"row {i:02d}" for i in range(60)] == table["id"].to_pylist()
    assert run_fake_job(source, bucket.uri("a"), **CUT).rows_before == 60


@pytest.mark.parametrize("stop", [1, 25, 59])
def test_the_same_command_goes_on(source, whole, bucket, stop):
    """What is committed is not computed again."""
    with pytest.raises(JobStoppedError):
        run_fake_job(source, bucket.uri("out"), progress=stop_after(stop), **CUT)
    assert not [name for name in bucket.names("out") if name.startswith("_lock")]
    pool = FakePool()
    summary = run_fake_job(source, bucket.uri("out"), pool, **CUT)
    finished(bucket, "out", whole, summary)
    sent = {row for assignment in pool.sent for row in assignment.shard.rows}
    assert stop <= summary.rows_before == 60 - len(sent)


def run_and_die(operation, source, output):
    """Run a job that SIGKILL ends before, or right after, its n-th change of the store."""
    use_credentials()
    be_quick(setattr)
    left = [operation]

    def dying(method):
        def call(*arguments):
            left[0] -= 1
            if left[0] < 0 and operation % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            method(*arguments)
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in ("put", "_remove"):
        setattr(ObjectStore, name, dying(getattr(ObjectStore, name)))
    run_fake_job(source, output, **CUT)


def test_a_killed_driver_loses_nothing(source, whole, bucket):
    """SIGKILL at random changes of the store, the same command, and again."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.cluster.test_object_store"])
    chosen, kills = random.Random(0), 0
    for key in ("a", "b"):
        is_dead = True
        while is_dead:
            operation = chosen.randrange(40)
            child = processes.Process(target=run_and_die, args=(operation, source, bucket.uri(key)))
            child.start()
            child.join()
            is_dead = child.exitcode == -signal.SIGKILL
            assert is_dead or child.exitcode == 0
            kills += is_dead
            seen = bucket.parts(key)
            assert seen == {name: whole[1][name] for name in seen}
        finished(bucket, key, whole, run_fake_job(source, bucket.uri(key), **CUT))
    assert kills >= 3


def test_rows_in_error_are_done_again(source, whole, bucket):
    """Stopped in between, too: the local run's bytes, and nothing besides."""
    cut, worker = CUT | {"max_worker_restarts": 99}, frozenset({ErrorKind.WORKER})
    run_fake_job(source, bucket.uri("out"), FakePool(poison={3, 40, 59}), **cut)
    with pytest.raises(JobStoppedError):
        run_fake_job(source, bucket.uri("out"), retried=worker, progress=stop_after(58), **cut)
    status = read_status(bucket.uri("out"))
    assert (RunState.STOPPED, 3) == (status.state, status.num_parts)
    pool = FakePool()
    summary = run_fake_job(source, bucket.uri("out"), pool, retried=worker, **cut)
    finished(bucket, "out", whole, summary)
    assert {row for sent in pool.sent for row in sent.shard.rows} < {3, 40, 59}


def test_a_second_driver_is_refused_while_the_first_lives(bucket):
    """It is told on which host and since when; once the first has ended it may."""
    with RunDirectory.claim(bucket.uri("out")):
        with pytest.raises(JobConfigError, match="another driver is writing") as caught:
            RunDirectory.claim(bucket.uri("out"))
        for said in (
            f"s3://{bucket.name}/out:",
            f"on {socket.gethostname()}",
            f"pid {os.getpid()}",
        ):
            assert said in str(caught.value)
        assert "endpoint_override" not in str(caught.value)
    with RunDirectory.claim(bucket.uri("out")):
        pass
    assert [] == bucket.names("out")


def test_a_driver_that_was_suspended_does_not_write_into_the_run_of_another(
    source, whole, bucket, monkeypatch
):
    """Its claim did not change for long, another one took its place: it finds out and stops."""
    asleep = Event()
    with monkeypatch.context() as patch:
        patch.setattr(lease.Lease, "_keep", lambda self: asleep.wait())
        first = RunDirectory.claim(bucket.uri("out"))
    notes = []
    with RunDirectory.claim(bucket.uri("out"), notes.append):
        assert len(notes) == 1
        assert "may be dead: taking its place if nothing is heard of it for 3 s" in notes[0]
        with pytest.raises(JobStoppedError, match="another one took the output over"):
            first.remove([first.path / "part-00000.parquet"])
    asleep.set()
    with pytest.raises(JobStoppedError, match="which has ended since"), first:
        first.remove([first.path / "part-00000.parquet"])
    summary = run_fake_job(source, bucket.uri("out"), **CUT)
    finished(bucket, "out", whole, summary)


def test_of_many_drivers_at_once_one_at_most_gets_the_output(bucket):
    """However their requests interleave."""
    from concurrent.futures import ThreadPoolExecutor

    def claim(_):
        try:
            return RunDirectory.claim(bucket.uri("out"))
        except JobConfigError:
            return None

    with ThreadPoolExecutor(6) as threads:
        holders = [run for run in threads.map(claim, range(6)) if run is not None]
    assert len(holders) <= 1
    for run in holders:
        run.release()
    RunDirectory.claim(bucket.uri("out")).release()


def test_status_tells_from_the_store_alone(source, bucket):
    """While the driver lives, after it stopped, and once the run is complete."""
    output, seen = bucket.uri("out"), []

    def progress(state):
        if state.rows_done >= 20 and not seen:
            seen.append((state.rows_done, read_status(output)))
        if state.rows_done >= 40:
            raise JobStoppedError("stopped by the test")

    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, progress=progress, **CUT)
    ((done, running),) = seen
    assert (RunState.RUNNING, done) == (running.state, running.rows_done)
    stopped = read_status(output)
    assert (RunState.STOPPED, 60) == (stopped.state, stopped.rows_done + stopped.rows_left)
    run_fake_job(source, output, **CUT)
    assert (RunState.COMPLETE, 0) == (read_status(output).state, read_status(output).rows_left)
    with pytest.raises(JobConfigError, match=f"s3://{bucket.name}/no: no run of tokenmill"):
        read_status(bucket.uri("no"))


def test_what_is_not_written_to_its_end_is_not_there(bucket):
    """An error of this program in the middle of a part that is larger than an upload's piece."""
    target = bucket.path("out/part-00000.parquet")

    def write_half():
        with committed_file(target) as file:
            file.write(os.urandom(12 << 20))
            raise RuntimeError("by the test")

    with pytest.raises(RuntimeError):
        write_half()
    assert not target.exists()
    with committed_file(target) as file:
        file.write(content := os.urandom(12 << 20))
    assert (content, len(content)) == (target.read_bytes(), target.stat().st_size)


def test_a_store_that_fails_is_a_stop_and_the_same_command_goes_on(
    source, whole, bucket, monkeypatch
):
    """Whichever request is the one that fails."""
    put, output = ObjectStore.put, bucket.uri("out")
    for allowed in (1, 3, 8, 20):
        left = [allowed]

        def failing(self, key, data, left=left):
            if "_lock" not in key:
                left[0] -= 1
                if left[0] < 0:
                    raise OSError("AWS Error ACCESS_DENIED during PutObject operation")
            put(self, key, data)

        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "put", failing)
            with pytest.raises(JobStoppedError, match="ACCESS_DENIED"):
                run_fake_job(source, output, **CUT)
    finished(bucket, "out", whole, run_fake_job(source, output, **CUT))


def test_inputs_are_the_files_that_a_local_folder_would_give(data, bucket, tmp_path):
    """Folders' names as columns, hidden names and files of other kinds left out, patterns."""
    small = (data / "cases/small.parquet").read_bytes()
    names = ["lang=de/b.parquet", "lang=en/a.parquet", "_hidden/c.parquet", "lang=en/plain"]
    (tmp_path / "README.md").write_text("not data")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(small)
    bucket.upload(tmp_path, "in")
    for pattern in ("", "/*", "/lang=*/*.parquet", "/**", "/*/p*", "/lang=en", "/**/a*"):
        local = find_input_files(f"{tmp_path}{pattern}")
        remote = find_input_files(bucket.uri(f"in{pattern}"))
        assert [f.relative for f in local] == [f.relative for f in remote]
    for pattern in ("", "/lang=en"):
        local = InputDataset.open(f"{tmp_path}{pattern}", InputColumns())
        remote = InputDataset.open(bucket.uri(f"in{pattern}"), InputColumns())
        assert local.schema == remote.schema
        assert local.num_rows == remote.num_rows


def test_inputs_that_are_not_there_and_outputs_that_cannot_be_are_named(source, bucket):
    """No bucket, no object, an object as output, an output in the input; no credentials shown."""
    for key in ("no", "no/*.parquet"):
        with pytest.raises(InputError, match=f"s3://{bucket.name}/no"):
            InputDataset.open(bucket.uri(key), InputColumns())
    bucket.path("file").put(b"x")
    with pytest.raises(JobConfigError, match="not a folder"):
        RunDirectory.claim(bucket.uri("file"))
    bucket.path("mine/notes.txt").put(b"x")
    with pytest.raises(JobConfigError, match=r"not an output of tokenmill \(it holds notes.txt\)"):
        RunDirectory.claim(bucket.uri("mine"))
    gone = bucket.uri("out").replace(bucket.name, "key:secret@nowhere")
    with pytest.raises(JobConfigError, match=r"s3://nowhere/out: .*cannot be written") as caught:
        RunDirectory.claim(gone)
    assert "secret" not in str(caught.value)
    bucket.upload(source, "in")
    with pytest.raises(JobConfigError, match="lies in the input"):
        run_fake_job(bucket.uri("in"), bucket.uri("in/out"))
    with pytest.raises(JobConfigError, match="not a place that can be opened"):
        location("s3://bucket/key?no_such_option=1")

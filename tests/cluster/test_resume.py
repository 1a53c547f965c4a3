"""A run that was interrupted and goes on: no row is lost, doubled or computed again."""

import errno
import json
import os

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cluster.commit import HashingFile
from cluster.errors import JobConfigError, JobStoppedError, RowErrorsError
from cluster.run_directory import RunDirectory
from tests.cluster.fake_job import run_fake_job
from tests.cluster.fake_pool import FakePool
from tests.cluster.killed_driver import MOST_OPERATIONS, killed_at
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams

ROWS_60 = [f"row {i:02d}" for i in range(60)]
CUT = {"part_rows": 25, "shard_rows": 4}


def ids(folder):
    """The ids that a reader of the folder sees, in order."""
    return ds.dataset(folder).to_table()["id"].to_pylist() if list(folder.glob("*.parquet")) else []


def parts(folder):
    """Name to bytes of all parts."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}


def stop_after(num_rows):
    """A progress callback that is Ctrl-C once so many rows are done."""

    def progress(state):
        if state.rows_done >= num_rows:
            raise JobStoppedError("stopped by the test")

    return progress


@pytest.fixture
def source(data):
    """60 rows in six files."""
    return data / "cases/rows-60"


@pytest.fixture
def whole(source, tmp_path):
    """The run that nothing interrupts: summary and folder."""
    return run_fake_job(source, tmp_path / "whole", **CUT), tmp_path / "whole"


def interrupted(source, output, num_rows, **fields):
    """Leave a run that stopped once so many rows were done."""
    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, progress=stop_after(num_rows), **CUT, **fields)


@pytest.mark.parametrize("stop", [1, 10, 25, 40, 59])
def test_the_same_command_goes_on(source, whole, tmp_path, stop):
    """Parts, checksum and summary are those of a run in one go; what is done is not done again."""
    output = tmp_path / "out"
    interrupted(source, output, stop)
    committed = sum(len(rows) for rows in RunDirectory.claim(str(output)).shard_ranges())
    committed += len(ids(output))
    pool = FakePool()
    summary = run_fake_job(source, output, pool, **CUT)
    assert parts(whole[1]) == parts(output)
    assert (whole[0].checksum, 60) == (summary.checksum, summary.num_rows)
    assert stop <= committed == summary.rows_before
    assert 60 - committed == len({row for sent in pool.sent for row in sent.shard.rows})
    assert ["_SUCCESS", "_manifest.json", "_stats"] == sorted(
        path.name for path in output.iterdir() if path.name.startswith("_")
    )


def test_another_number_of_workers_and_other_shards_change_nothing(source, whole, tmp_path):
    """The plan is the manifest's; what decides about rows alone is compared."""
    interrupted(source, tmp_path / "out", 10)
    run_fake_job(source, tmp_path / "out", workers=5, shard_rows=1, part_rows=7)
    assert parts(whole[1]) == parts(tmp_path / "out")


def test_statistics_have_the_workers_and_rows_of_all_drivers(source, tmp_path):
    """Each row once, each worker under a name of its own."""
    output = tmp_path / "out"
    interrupted(source, output, 10)
    interrupted(source, output, 30)
    run_fake_job(source, output, **CUT)
    rows = pq.read_table(output / "_stats/rows.parquet")
    workers = pq.read_table(output / "_stats/workers.parquet")
    assert list(range(60)) == rows["row_id"].to_pylist()
    names = workers["worker_id"].to_pylist()
    assert ["worker-0", "worker-1", "driver-2-worker-0"] == names[:3]
    assert len(set(names)) == len(names) == 6
    assert 60 == sum(workers["rows"].to_pylist())
    assert set(rows["worker_id"].to_pylist()) <= set(names)


def test_a_finished_run_is_finished(source, whole):
    """The same command again computes nothing and ends well, with the same totals."""
    pool = FakePool()
    before = parts(whole[1])
    summary = run_fake_job(source, whole[1], pool, **CUT)
    assert ([], 0) == (pool.sent, pool.num_started)
    assert before == parts(whole[1])
    assert (60, 60, whole[0].checksum) == (
        summary.num_rows,
        summary.rows_before,
        summary.checksum,
    )


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sha256": "1" * 64}, ["model_sha256", "'000", "'111"]),
        ({"sampling": SamplingParams(max_tokens=3)}, ["sampling.max_tokens was 128, is 3"]),
        ({"engine": EngineConfig(job_seed=7)}, ["seed was 0, is 7"]),
        ({"engine": EngineConfig(compute="f32")}, ["compute was 'int8', is 'f32'"]),
        ({"engine": EngineConfig(chat_template="{{ x }}")}, ["chat_template was None, is '{{"]),
        ({"prompt_column": "id"}, ["prompt_column was None, is 'id'"]),
        ({"output_prefix": "x_"}, ["output_prefix was '', is 'x_'"]),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_another_job_is_refused_by_the_keys_that_differ(source, tmp_path, changed, named, finished):
    """Both values and what to do are told, before a worker starts; nothing is changed."""
    output = tmp_path / "out"
    if finished:
        run_fake_job(source, output, **CUT)
    else:
        interrupted(source, output, 30)
    before = sorted(os.walk(output)), parts(output)
    pool = FakePool()
    with pytest.raises(JobConfigError) as caught:
        run_fake_job(source, output, pool, **CUT, **changed)
    assert [] == [word for word in [*named, str(output)] if word not in str(caught.value)]
    assert "go back to the old settings" in str(caught.value)
    assert (before, 0) == ((sorted(os.walk(output)), parts(output)), pool.num_started)


def test_other_input_is_refused_by_its_files(source, tmp_path):
    """A file more, one less, one with other content; a touch changes nothing."""
    copy = tmp_path / "in"
    copy.mkdir()
    for path in source.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    interrupted(copy, tmp_path / "out", 30)
    first, second, *_ = sorted(copy.iterdir())
    (copy / "zz.parquet").write_bytes(first.read_bytes())
    pq.write_table(pq.read_table(second).slice(1), second)
    first.unlink()
    with pytest.raises(JobConfigError) as caught:
        run_fake_job(copy, tmp_path / "out", **CUT)
    for said in (f"{first.name} is gone", "zz.parquet is new", f"{second.name}: footer_sha256"):
        assert said in str(caught.value)


def test_a_touched_input_is_the_same(source, tmp_path):
    """Times are not part of a run's identity."""
    copy = tmp_path / "in"
    copy.mkdir()
    for path in source.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    interrupted(copy, tmp_path / "out", 30)
    for path in copy.iterdir():
        os.utime(path, (0, 0))
    run_fake_job(copy, tmp_path / "out", **CUT)
    assert ROWS_60 == ids(tmp_path / "out")


def test_a_worker_with_other_numerics_cannot_go_on(source, tmp_path):
    """The rows that are done name the arithmetic; two kinds are not mixed."""
    interrupted(source, tmp_path / "out", 30)
    with pytest.raises(JobConfigError, match=r"computes with other, the rows .* with fake"):
        run_fake_job(source, tmp_path / "out", FakePool(loads=[{"numerics": "other"}] * 2), **CUT)


def test_templates_see_the_date_of_the_first_driver(source, tmp_path):
    """A run over midnight has one date."""
    output, specs = tmp_path / "out", []

    class Pool(FakePool):
        def begin(self, spec, *others):
            specs.append(spec)
            return super().begin(spec, *others)

    interrupted(source, output, 30)
    manifest = json.loads((output / "_manifest.json").read_bytes())
    manifest["template_date"] = "1999-12-31T23:59:59+00:00"
    (output / "_manifest.json").write_text(json.dumps(manifest))
    run_fake_job(source, output, Pool(), **CUT)
    assert "1999-12-31T23:59:59+00:00" == specs[0].engine.chat_template_date.isoformat()


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "no statistics", "no record"])
def test_a_part_that_does_not_match_its_record_is_made_again(source, whole, tmp_path, harm):
    """Its rows are computed again, the others are kept."""
    output = tmp_path / "out"

    def stop_after_two_parts(_):
        if (output / "part-00001.parquet").exists():
            raise JobStoppedError("stopped by the test")

    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, progress=stop_after_two_parts, **CUT)
    part, record = output / "part-00000.parquet", output / "_shards/part-00000.json"
    content = part.read_bytes()
    match harm:
        case "cut":
            part.write_bytes(content[:-1])
        case "changed":
            part.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        case "gone":
            part.unlink()
        case "no statistics":
            (output / "_shards/stats-00000.arrow").unlink()
        case "no record":
            record.write_bytes(b"{")
    pool = FakePool()
    run_fake_job(source, output, pool, **CUT)
    assert parts(whole[1]) == parts(output)
    assert set(range(25)) <= {row for sent in pool.sent for row in sent.shard.rows}
    assert not {row for sent in pool.sent for row in sent.shard.rows} & set(range(25, 50))


def test_a_damaged_shard_is_computed_again(source, whole, tmp_path):
    """Not a Parquet-like tail, and other rows than its name says."""
    output = tmp_path / "out"
    interrupted(source, output, 20)
    first, second, *_ = sorted((output / "_shards").glob("rows-*.arrow"))
    first.write_bytes(first.read_bytes()[:-8])
    second.write_bytes(sorted((output / "_shards").glob("rows-*.arrow"))[2].read_bytes())
    run_fake_job(source, output, **CUT)
    assert parts(whole[1]) == parts(output)


def test_max_errors_counts_the_rows_of_earlier_drivers(data, tmp_path):
    """A job that was ended for its errors does not go on by being started again."""
    source, output = data / "cases/401-null-prompts/rows.parquet", tmp_path / "out"
    for _ in range(2):
        with pytest.raises(RowErrorsError, match="max_errors is 0"):
            run_fake_job(source, output, shard_rows=1, max_errors=0)
    summary = run_fake_job(source, output, shard_rows=1)
    assert 0 < summary.num_errors < summary.num_rows
    (count,) = duckdb.sql(f"select count(*) from '{output}/*.parquet'").fetchall()[0]
    assert summary.num_rows == count


def test_a_full_disk_stops_and_the_same_command_goes_on(source, whole, tmp_path, monkeypatch):
    """Whichever write is the one that fails: nothing half-written, nothing lost."""
    write, output, reasons = HashingFile.write, tmp_path / "out", []
    for allowed in range(0, MOST_OPERATIONS, 7):
        left = [allowed]

        def failing(self, data, left=left):
            if left[0] == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            left[0] -= 1
            return write(self, data)

        monkeypatch.setattr(HashingFile, "write", failing)
        try:
            run_fake_job(source, output, **CUT)
            break
        except JobStoppedError as error:
            reasons.append(str(error))
        assert not list(output.glob("**/*.tmp"))
        assert ids(output) == ROWS_60[: len(ids(output))]
    else:
        raise AssertionError("the job never ended")
    assert parts(whole[1]) == parts(output)
    assert reasons
    assert all("no space left" in reason for reason in reasons)


def test_a_driver_killed_at_any_file_operation_loses_nothing(source, tmp_path, monkeypatch):
    """SIGKILL before each creation, write, fsync, rename, removal; then the same command.

    Readers see whole parts in order between the two, and the uninterrupted run's bytes after. A
    killed process loses nothing of what it wrote, so nothing is synced here.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    rows_10, cut = sorted(source.iterdir())[0], {"part_rows": 5, "shard_rows": 3}
    whole = run_fake_job(rows_10, tmp_path / "whole", **cut)
    for operation in range(MOST_OPERATIONS):
        output = tmp_path / f"out-{operation}"
        was_killed = killed_at(operation, rows_10, output, **cut)
        if output.exists():
            assert ids(output) in ([], ROWS_60[:5], ROWS_60[:10])
        if not was_killed:
            break
        summary = run_fake_job(rows_10, output, **cut)
        assert parts(tmp_path / "whole") == parts(output)
        assert whole.checksum == summary.checksum
        assert ["_SUCCESS", "_manifest.json", "_stats"] == sorted(
            path.name for path in output.iterdir() if path.name.startswith("_")
        )
        rows = pq.read_table(output / "_stats/rows.parquet")["row_id"].to_pylist()
        assert list(range(10)) == rows
    assert operation > 60


def test_a_shard_that_overlaps_another_is_not_trusted(source, whole, tmp_path):
    """However it came there: each row counts once."""
    output = tmp_path / "out"
    interrupted(source, output, 20)
    with RunDirectory.claim(str(output)) as run:
        rows = run.shard_ranges()[0]
        table = run.read_shard(rows)
        run.commit_shard(range(rows.start, rows.stop - 1), table.slice(0, len(rows) - 1))
        assert isinstance(table, pa.Table)
    run_fake_job(source, output, **CUT)
    assert parts(whole[1]) == parts(output)

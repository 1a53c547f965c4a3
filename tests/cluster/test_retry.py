"""Rows in error that are done again: the output is as if they had never failed."""

import json
import os
import shutil

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cluster import parts as parts_module
from cluster import results as results_module
from cluster.errors import JobConfigError, JobStoppedError, RowErrorsError
from cluster.optional_column import OptionalColumn
from cluster.retry import error_kinds
from cluster.run_directory import RunDirectory
from cluster.status import RunState, read_status
from cluster.summary import FinishedWithErrors
from tests.cluster.fake_job import run_fake_job
from tests.cluster.fake_pool import FakePool
from tests.cluster.killed_driver import MOST_OPERATIONS, killed_at
from worker.engine.sampling_params import SamplingParams
from worker.errors import ErrorKind

ALL = frozenset(ErrorKind)
WORKER = frozenset({ErrorKind.WORKER})
POISON = {1, 7, 8}
NULL_ROW = 4
CUT = {"part_rows": 3, "shard_rows": 2, "max_worker_restarts": 99}


@pytest.fixture
def source(tmp_path):
    """Ten rows in two files; one has no prompt."""
    folder = tmp_path / "in"
    folder.mkdir()
    prompts = [None if i == NULL_ROW else f"row {i}" for i in range(10)]
    for name, rows in (("a", range(6)), ("b", range(6, 10))):
        columns = {"id": list(rows), "prompt": [prompts[i] for i in rows]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=4)
    return folder


def finished(source, output, **fields):
    """A run in which some rows killed their workers."""
    summary = run_fake_job(source, output, FakePool(poison=POISON), **CUT, **fields)
    assert {"input": 1, "worker": 3} == summary.errors
    return output


def parts(folder):
    """Name to bytes of all parts."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*.parquet"))}


def times(folder):
    """Name to the time of the last change and the file's number, of all parts."""
    stats = {path.name: path.stat() for path in folder.glob("part-*.parquet")}
    return {name: (stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def sent_rows(pool):
    """The rows that workers got."""
    return {row for sent in pool.sent for row in sent.shard.rows}


def records(folder):
    """What the manifest says of the parts, without the number of the retry."""
    parts = json.loads((folder / "_manifest.json").read_bytes())["parts"]
    return [{name: value for name, value in part.items() if name != "retry"} for part in parts]


def row_stats(folder):
    """The statistics of rows."""
    return pq.read_table(folder / "_stats/rows.parquet")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"output_columns": ["prompt_tokens", "generated_tokens", "logprobs", "completions"]},
        {"output_prefix": "tm_", "max_n": 3},
    ],
)
def test_the_output_is_that_of_a_run_in_which_the_rows_never_failed(source, tmp_path, fields):
    """Parts, records and checksum; only the rows that are wanted are computed."""
    whole = run_fake_job(source, tmp_path / "whole", **CUT, **fields)
    output = finished(source, tmp_path / "out", **fields)
    before, pool = parts(output), FakePool()
    summary = run_fake_job(source, output, pool, retried=WORKER, **CUT, **fields)
    assert before != parts(output)
    assert parts(tmp_path / "whole") == parts(output)
    assert records(tmp_path / "whole") == records(output)
    assert POISON == sent_rows(pool)
    totals = [(s.checksum, s.errors, s.num_rows, s.generated_tokens) for s in (whole, summary)]
    assert totals[0] == totals[1]
    assert 7 == summary.rows_before
    assert ["_SUCCESS", "_manifest.json", "_stats"] == sorted(
        path.name for path in output.iterdir() if path.name.startswith("_")
    )


def test_whatever_a_part_can_hold_is_kept_over_many_row_groups(tmp_path, monkeypatch):
    """Several completions, log-probabilities, nulls and user columns, cut as they would be."""
    monkeypatch.setattr(parts_module, "_ROW_GROUP_BYTES", 64 * 40)
    monkeypatch.setattr(results_module, "_ROWS_A_BATCH", 7)
    source, fields = tmp_path / "rows.parquet", {"output_columns": list(OptionalColumn)}
    fields |= {"sampling": SamplingParams(logprobs=1), "max_n": 3, "sampling_params_column": "how"}
    columns = {
        "prompt": [None if i % 11 == 3 else "x" * (i % 5) + str(i) for i in range(200)],
        "how": [None if i % 3 else '{"n": 3}' for i in range(200)],
        "words": pa.array([str(i % 4) for i in range(200)]).dictionary_encode(),
        "lists": [None if i % 7 == 0 else [None, float(i)] * (i % 4) for i in range(200)],
    }
    pq.write_table(pa.table(columns), source, row_group_size=9)
    cut = {"part_rows": 150, "shard_rows": 8, "max_worker_restarts": 999}
    poison = {0, 1, 2, 33, 99, 140, 149, 199}
    whole = run_fake_job(source, tmp_path / "whole", **fields, **cut)
    run_fake_job(source, tmp_path / "out", FakePool(poison=poison), **fields, **cut)
    assert parts(tmp_path / "whole") != parts(tmp_path / "out")
    summary = run_fake_job(source, tmp_path / "out", retried=WORKER, **fields, **cut)
    assert parts(tmp_path / "whole") == parts(tmp_path / "out")
    assert records(tmp_path / "whole") == records(tmp_path / "out")
    assert whole.checksum == summary.checksum
    assert 5 < pq.read_metadata(tmp_path / "out/part-00000.parquet").num_row_groups
    rows = ds.dataset(tmp_path / "out").to_table().to_pylist()
    assert 3 == len(rows[0]["completions"])
    assert rows[1]["logprobs"][0]["top"]


def test_a_part_without_such_errors_is_not_touched(source, tmp_path):
    """Neither its bytes nor its file; the others are replaced by one rename each."""
    output = finished(source, tmp_path / "out")
    before = times(output)
    run_fake_job(source, output, retried=WORKER, **CUT)
    after = times(output)
    changed = {name for name in before if before[name] != after[name]}
    assert {"part-00000.parquet", "part-00002.parquet"} == changed


def test_all_kinds_are_tried_and_what_fails_again_stays(source, tmp_path):
    """A row without a prompt has the same error as before, and its part the same bytes."""
    output, pool = finished(source, tmp_path / "out"), FakePool()
    before = parts(output)
    summary = run_fake_job(source, output, pool, retried=ALL, **CUT)
    assert POISON | {NULL_ROW} == sent_rows(pool)
    assert {"input": 1} == summary.errors
    assert before["part-00001.parquet"] == parts(output)["part-00001.parquet"]


def test_statistics_keep_what_earlier_drivers_left(source, tmp_path):
    """Each row once, corrected ones by their new worker; all workers, each by its own name."""
    output = finished(source, tmp_path / "out")
    assert POISON == {
        i for i, kind in enumerate(row_stats(output)["error_kind"].to_pylist()) if kind == "worker"
    }
    old_rows, old_workers = row_stats(output).to_pylist(), (output / "_stats/workers.parquet")
    names = pq.read_table(old_workers)["worker_id"].to_pylist()
    for driver in (2, 3):
        run_fake_job(source, output, FakePool(), retried=ALL, **CUT)
        new_rows = row_stats(output).to_pylist()
        kept = [row for row in old_rows if row["error_kind"] is None]
        assert kept == [row for row in new_rows if row in kept]
        corrected = [row for row in new_rows if row not in kept]
        assert [1, NULL_ROW, 7, 8] == [row["row_id"] for row in corrected]
        retried = {NULL_ROW} if driver == 3 else POISON | {NULL_ROW}
        by_driver = {
            r["row_id"] for r in corrected if r["worker_id"].startswith(f"driver-{driver}")
        }
        assert retried == by_driver
        names += [f"driver-{driver}-worker-0", f"driver-{driver}-worker-1"]
        assert names == pq.read_table(old_workers)["worker_id"].to_pylist()


def test_samples_of_earlier_drivers_are_kept(source, tmp_path):
    """In the order they came."""

    class Pool(FakePool):
        def ask_report(self, worker_id):
            super().ask_report(worker_id)
            if self.events and self.events[-1].kind.name == "REPORTED":
                self.events[-1].value["samples"].append({"worker_id": worker_id})

    output = tmp_path / "out"
    run_fake_job(source, output, Pool(poison=POISON), **CUT)
    before = pq.read_table(output / "_stats/samples.parquet").to_pylist()
    run_fake_job(source, output, Pool(), retried=ALL, **CUT)
    after = pq.read_table(output / "_stats/samples.parquet").to_pylist()
    assert 0 < len(before) < len(after)
    assert before == after[: len(before)]
    assert {"driver-2"} == {sample["worker_id"][:8] for sample in after[len(before) :]}


@pytest.mark.parametrize("kinds", [frozenset({ErrorKind.TOO_LONG}), ALL])
def test_no_such_rows_is_said_and_nothing_is_done(source, tmp_path, kinds):
    """The run stays as it is, and no worker starts."""
    output, pool, notes = tmp_path / "out", FakePool(), []
    clean = source / "b.parquet"
    run_fake_job(clean, output, **CUT)
    before = {path: path.stat().st_mtime_ns for path in output.glob("**/*")}
    run_fake_job(clean, output, pool, retried=kinds, progress=lambda p: notes.append(p.note), **CUT)
    assert f"no rows in error ({', '.join(sorted(kinds))}) to try again" in notes
    assert 0 == pool.num_started
    assert before == {path: path.stat().st_mtime_ns for path in output.glob("**/*")}


def test_an_unfinished_run_is_finished_and_then_retried(source, tmp_path):
    """Also one that never began; rows that are done are not done again."""
    run_fake_job(source, tmp_path / "whole", **CUT)
    output = tmp_path / "out"
    pool = FakePool(poison=POISON)

    class Cured(FakePool):
        """Rows kill workers in the first of a command's two rounds."""

        def begin(self, *arguments):
            self.poison = {8} if not self.sent else set()
            return super().begin(*arguments)

    def stop(state):
        if state.rows_done >= 5:
            raise JobStoppedError("stopped by the test")

    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, pool, retried=ALL, progress=stop, **CUT)
    cured = Cured()
    summary = run_fake_job(source, output, cured, retried=ALL, **CUT)
    assert {"input": 1} == summary.errors
    assert parts(tmp_path / "whole") == parts(output)
    assert 8 in sent_rows(cured)


def test_another_job_is_refused_before_anything_changes(source, tmp_path):
    """As without the option; the run stays finished."""
    output = finished(source, tmp_path / "out")
    before = sorted(os.walk(output)), parts(output)
    with pytest.raises(JobConfigError, match=r"output_prefix was '', is 'x_'"):
        run_fake_job(source, output, retried=ALL, output_prefix="x_", **CUT)
    assert before == (sorted(os.walk(output)), parts(output))


@pytest.mark.parametrize("harm", ["gone", "damaged", "other rows"])
def test_a_run_without_its_statistics_is_refused_and_stays_finished(source, tmp_path, harm):
    """They say which rows failed how; the file is named."""
    output = finished(source, tmp_path / "out")
    file = output / "_stats/rows.parquet"
    match harm:
        case "gone":
            file.unlink()
        case "damaged":
            file.write_bytes(file.read_bytes()[:-9])
        case _:
            pq.write_table(row_stats(output).slice(1), file)
    with pytest.raises(JobConfigError, match=r"rows\.parquet: cannot be used"):
        run_fake_job(source, output, retried=ALL, **CUT)
    assert RunState.COMPLETE is read_status(str(output)).state
    assert 10 == run_fake_job(source, output, **CUT).rows_before
    assert not (output / "_shards").exists()


def test_max_errors_and_fail_on_errors_look_at_what_is_left(source, tmp_path):
    """Rows that are tried again are no errors until they fail again."""
    output = finished(source, tmp_path / "out")
    with pytest.raises(FinishedWithErrors) as caught:
        run_fake_job(source, output, retried=WORKER, fail_on_errors=True, max_errors=1, **CUT)
    assert {"input": 1} == caught.value.summary.errors
    other = finished(source, tmp_path / "other")
    with pytest.raises(RowErrorsError, match="max_errors is 1"):
        run_fake_job(source, other, FakePool(poison=POISON), retried=WORKER, max_errors=1, **CUT)


def test_status_during_a_retry(source, tmp_path):
    """At each moment what the driver counts; before, between and after it adds up to all rows."""
    output, seen = finished(source, tmp_path / "out"), []
    assert {"input": 1, "worker": 3} == read_status(str(output)).errors

    def progress(state):
        if state.workers_ready:
            seen.append((state.rows_done, state.num_errors, read_status(str(output))))

    run_fake_job(source, output, retried=WORKER, progress=progress, **CUT)
    during = [entry for entry in seen if entry[2].state is RunState.RUNNING]
    counted = [(status.rows_done, status.rows_failed) for _, _, status in during]
    assert [(done, errors) for done, errors, _ in during] == counted
    assert {7, 10} <= {done for done, _ in counted}
    assert {1} == {failed for _, failed in counted}
    assert {4} == {status.num_parts for _, _, status in during}


def test_other_kinds_come_after_the_retry_that_is_under_way(source, tmp_path):
    """Nothing is lost of the first; a plain run goes on with the first alone."""
    output = finished(source, tmp_path / "out")

    def stop(state):
        if state.workers_ready:
            raise JobStoppedError("stopped by the test")

    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, retried=WORKER, progress=stop, **CUT)
    copy = shutil.copytree(output, tmp_path / "copy")
    pool = FakePool()
    assert {"input": 1} == run_fake_job(source, copy, pool, **CUT).errors
    assert POISON == sent_rows(pool)
    pool = FakePool()
    run_fake_job(source, output, pool, retried=frozenset({ErrorKind.INPUT}), **CUT)
    assert POISON | {NULL_ROW} == sent_rows(pool)


def test_a_part_that_is_damaged_during_a_retry_is_made_again(source, tmp_path):
    """All of it, its corrections included; the next start does not take it for the old one."""
    run_fake_job(source, tmp_path / "whole", **CUT)
    output = finished(source, tmp_path / "out")

    def stop(state):
        if state.rows_done >= 9:
            raise JobStoppedError("stopped by the test")

    with pytest.raises(JobStoppedError):
        run_fake_job(source, output, retried=WORKER, progress=stop, **CUT)
    (output / "part-00002.parquet").write_bytes(b"no part")
    pool = FakePool()
    run_fake_job(source, output, pool, retried=WORKER, **CUT)
    assert parts(tmp_path / "whole") == parts(output)
    assert sent_rows(pool) <= {1, 6, 7, 8}


@pytest.mark.parametrize("again", ["the same command", "a plain run"])
def test_a_driver_killed_at_any_file_operation_loses_nothing(source, tmp_path, monkeypatch, again):
    """SIGKILL before each creation, write, fsync, rename, removal of a retry; then once more.

    Readers see all parts at every moment. What comes after is the run with the errors or the one
    without, whole, and no row is computed that had not failed.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)
    retried = WORKER if again == "the same command" else frozenset()
    whole, failed = tmp_path / "whole", finished(source, tmp_path / "failed")
    run_fake_job(source, whole, **CUT)
    ends = set()
    for operation in range(MOST_OPERATIONS):
        output = shutil.copytree(failed, tmp_path / f"out-{operation}")
        was_killed = killed_at(operation, source, output, retried=WORKER, **CUT)
        assert list(range(10)) == ds.dataset(output).to_table()["id"].to_pylist()
        if not was_killed:
            assert parts(whole) == parts(output)
            break
        pool = FakePool()
        run_fake_job(source, output, pool, retried=retried, **CUT)
        assert sent_rows(pool) <= POISON
        end = next(folder for folder in (whole, failed) if parts(folder) == parts(output))
        ends.add(end.name)
        assert records(end) == records(output)
        assert ["_SUCCESS", "_manifest.json", "_stats"] == sorted(
            path.name for path in output.iterdir() if path.name.startswith("_")
        )
        assert list(range(10)) == row_stats(output)["row_id"].to_pylist()
        kinds = [row_stats(end)["error_kind"], row_stats(output)["error_kind"]]
        assert kinds[0].to_pylist() == kinds[1].to_pylist()
        shutil.rmtree(output)
    assert operation > 60
    assert ends == ({"whole"} if retried else {"whole", "failed"})


def test_kinds_are_known_by_name():
    """None named means all; an unknown one is answered with those there are."""
    assert ALL == error_kinds([])
    assert {ErrorKind.WORKER, ErrorKind.TOO_LONG} == error_kinds(["worker", "too_long"])
    with pytest.raises(JobConfigError, match=r"'workers' is no kind .* input, sampling_params, "):
        error_kinds(["workers"])


def test_a_row_that_is_given_up_again_is_an_error_again(source, tmp_path):
    """Of its kind, and the folder is as before the retry."""
    output = finished(source, tmp_path / "out")
    before = parts(output)
    summary = run_fake_job(source, output, FakePool(poison=POISON), retried=WORKER, **CUT)
    assert {"input": 1, "worker": 3} == summary.errors
    assert before == parts(output)
    with RunDirectory.claim(str(output)) as run:
        assert [1, 0, 1, 0] == [record.retry for record in run.manifest.parts]

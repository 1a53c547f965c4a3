"""What a run directory alone tells of a run."""

import pytest

from cluster.errors import JobConfigError, JobStoppedError
from cluster.status import RunState, read_status
from tests.cluster.fake_job import run_fake_job

CUT = {"part_rows": 25, "shard_rows": 4}


def test_a_running_job_is_seen_from_outside(data, tmp_path):
    """Rows of parts and shards together, at any moment as many as the driver itself counts."""
    output, seen = str(tmp_path / "out"), []

    def progress(state):
        if state.rows_done:
            seen.append((state.rows_done, state.num_errors, read_status(output)))

    run_fake_job(data / "cases/rows-60", output, progress=progress, **CUT)
    assert len(seen) > 5
    assert [] == [s for _, _, s in seen if s.state not in (RunState.RUNNING, RunState.COMPLETE)]
    assert [(done, errors) for done, errors, _ in seen] == [
        (status.rows_done, status.rows_failed) for _, _, status in seen
    ]
    assert {60} == {status.num_rows for _, _, status in seen}


def test_a_stopped_job_keeps_its_rate_and_says_who_worked(data, tmp_path):
    """Nobody holds the lock; what is left is known, when it ends is not."""

    def progress(state):
        if state.rows_done >= 30:
            raise JobStoppedError("stopped by the test")

    output = tmp_path / "out"
    with pytest.raises(JobStoppedError):
        run_fake_job(data / "cases/rows-60", output, progress=progress, **CUT)
    status = read_status(str(output))
    parts = list(output.glob("part-*.parquet"))
    assert (RunState.STOPPED, len(parts)) == (status.state, status.num_parts)
    assert (60, 1) == (status.rows_done + status.rows_left, status.driver.driver)
    assert status.rows_per_s > 0
    assert status.seconds_left is None


def test_a_complete_run_counts_by_its_manifest(data, tmp_path):
    """Failed rows among them."""
    output = tmp_path / "out"
    run_fake_job(data / "cases/401-null-prompts/rows.parquet", output)
    status = read_status(str(output))
    assert (RunState.COMPLETE, 0, 1) == (status.state, status.rows_left, status.num_parts)
    assert 0 < status.rows_failed < status.rows_done


@pytest.mark.parametrize("name", ["nothing", "foreign"])
def test_a_folder_without_a_run_is_refused(tmp_path, name):
    """The folder and what is missing are named."""
    if name == "foreign":
        (tmp_path / name).mkdir()
    with pytest.raises(JobConfigError, match=f"{name}: no run of tokenmill"):
        read_status(str(tmp_path / name))

"""A signal that comes while Ray starts."""

import signal
from contextlib import contextmanager

import pytest

from cluster import run_job as module
from cluster.config import ClusterConfig
from cluster.errors import JobStoppedError
from cluster.job import Job


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_ray_starts_to_its_end_and_then_the_job_stops(data, tmp_path, monkeypatch, name):
    """An exception in the middle would leave a client that crashes at exit; nothing is written."""
    seen = []

    @contextmanager
    def session(_, *, process_ends):
        seen.append(process_ends)
        signal.raise_signal(signal.Signals[name])
        seen.append("started")
        yield

    monkeypatch.setattr(module, "ray_session", session)
    job = Job(
        input=str(data / "cases/421-one-row-group/rows.parquet"),
        output=str(tmp_path / "out"),
        model=str(data / "cases/chain-llama.gguf"),
        cluster=ClusterConfig(workers=1),
    )
    with pytest.raises(JobStoppedError, match=f"stopped by {name}"):
        module.run_job(job, lambda _: None)
    assert [False, "started"] == seen
    assert [] == list(tmp_path.iterdir())

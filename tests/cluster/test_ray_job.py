"""Real Ray, real engine, a small model: a few jobs on one embedded session."""

import psutil
import pyarrow.dataset as ds
import pytest

from cluster.config import ClusterConfig
from cluster.errors import JobConfigError
from cluster.job import Job
from cluster.progress import Phase
from cluster.run_job import run_job
from cluster.session import ray_session
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling_params import SamplingParams

pytestmark = pytest.mark.ray

SAMPLING = SamplingParams(max_tokens=4)
ENGINE = EngineConfig(threads=1, max_num_seqs=8)


@pytest.fixture(scope="module", autouse=True)
def session():
    """One embedded Ray with two CPUs for all jobs of this module."""
    with ray_session(2):
        yield


@pytest.fixture
def job(data, tmp_path):
    """A job on the chain model."""

    def make(case="rows-60", workers=2, output="out", **config):
        return Job(
            input=str(data / "cases" / case),
            output=str(tmp_path / output),
            model=str(data / "cases/chain-llama.gguf"),
            sampling=SAMPLING,
            engine=ENGINE,
            cluster=ClusterConfig(workers=workers, **config),
        )

    return make


def answers(data, prompts):
    """What an engine without Ray answers."""
    engine = Engine.from_gguf(data / "cases/chain-llama.gguf", ENGINE)
    requests = [Request(row_id=i, prompt=p, sampling=SAMPLING) for i, p in enumerate(prompts)]
    return [completion.text for completion in engine.generate(requests)]


def worker_processes():
    """Processes of living workers of this session, never those of another one."""
    children = psutil.Process().children(recursive=True)
    lines = [(p, p.as_dict(["cmdline"])["cmdline"]) for p in children if p.is_running()]
    return [process for process, line in lines if line and line[0].startswith("ray::Worker")]


def test_two_workers_answer_as_one_engine_does(data, job):
    """Every row once, in order, with the text that an engine alone gives; both had a share."""
    summary = run_job(job(), lambda _: None)
    table = ds.dataset(summary.output).to_table().to_pylist()
    assert [f"row {i:02d}" for i in range(60)] == [row["id"] for row in table]
    assert answers(data, [r["prompt"] for r in table]) == [r["generated_text"] for r in table]
    assert 0 < min(worker.rows for worker in summary.workers)


def test_one_worker_and_two_write_the_same_bytes(job):
    """The SHA-256 of every part and the token checksum do not know how many workers there were."""
    summaries = [
        run_job(job(workers=n, output=f"{n}", part_rows=25), lambda _: None) for n in (1, 2)
    ]
    parts = [
        [(p.name, p.read_bytes()) for p in sorted(s.output.glob("part-*.parquet"))]
        for s in summaries
    ]
    assert parts[0] == parts[1]
    assert summaries[0].checksum == summaries[1].checksum


def test_a_worker_killed_in_the_middle_costs_no_row(data, job):
    """Kill -9 after the first commit: 3000 rows, each once, and the loss is told."""
    killed, notes = [], []

    def progress(state):
        notes.extend([state.note] if state.note else [])
        if state.phase is Phase.RUNNING and state.rows_done and not killed:
            killed.append(worker_processes()[0])
            killed[0].kill()

    summary = run_job(job("421-one-row-group/rows.parquet"), progress)
    table = ds.dataset(summary.output).to_table().to_pylist()
    assert list(range(3000)) == [row["id"] for row in table]
    assert answers(data, [r["prompt"] for r in table]) == [r["generated_text"] for r in table]
    assert [True] == [worker.lost for worker in summary.workers if worker.lost]
    assert 1 == len(notes)
    assert "is lost" in notes[0]


def test_workers_end_with_the_job(job):
    """No actor goes on after a job."""
    run_job(job(), lambda _: None)
    _, alive = psutil.wait_procs(worker_processes(), timeout=10)
    assert [] == alive


def test_more_workers_than_the_cluster_holds_are_refused(job, tmp_path):
    """Needed and available CPUs are named; nothing is written."""
    with pytest.raises(
        JobConfigError, match=r"workers: 50 with 1 threads each need 50 CPUs.* has 2 "
    ):
        run_job(job(workers=50), lambda _: None)
    assert not (tmp_path / "out").exists()

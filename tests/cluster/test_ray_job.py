"""Real Ray, real engine, a small model: a few jobs on one embedded session."""

import json
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
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
    """One embedded Ray with three CPUs for all jobs of this module."""
    with ray_session(3):
        yield


@pytest.fixture
def job(data, tmp_path):
    """A job on the chain model."""

    def make(
        case="rows-60",
        workers=2,
        output="out",
        sampling=SAMPLING,
        engine=ENGINE,
        model=data / "cases/chain-llama.gguf",
        **config,
    ):
        return Job(
            input=str(data / "cases" / case),
            output=str(tmp_path / output),
            model=str(model),
            sampling=sampling,
            engine=engine,
            cluster=ClusterConfig(workers=workers, **config),
        )

    return make


def completions(data, prompts, sampling=SAMPLING):
    """What an engine without Ray answers."""
    engine = Engine.from_gguf(data / "cases/chain-llama.gguf", ENGINE)
    requests = [Request(row_id=i, prompt=p, sampling=sampling) for i, p in enumerate(prompts)]
    return engine.generate(requests)


def answers(data, prompts):
    """The texts of it."""
    return [completion.text for completion in completions(data, prompts)]


def worker_processes():
    """Processes of living workers of this session, never those of another one."""
    children = psutil.Process().children(recursive=True)
    lines = [(p, p.as_dict(["cmdline"])["cmdline"]) for p in children if p.is_running()]
    return [process for process, line in lines if line and line[0].startswith("ray::Worker")]


def test_two_workers_answer_as_one_engine_does(data, job):
    """Every row once, in order, with the text that an engine alone gives."""
    summary = run_job(job(), lambda _: None)
    table = ds.dataset(summary.output).to_table().to_pylist()
    assert [f"row {i:02d}" for i in range(60)] == [row["id"] for row in table]
    assert answers(data, [r["prompt"] for r in table]) == [r["generated_text"] for r in table]
    assert len(table) == sum(worker.rows for worker in summary.workers)


def by_workers(job, **asked):
    """Summaries of a job on one, two and three workers, which wrote the same bytes."""
    summaries = [
        run_job(job(workers=workers, output=f"{workers}", **asked), lambda _: None)
        for workers in (1, 2, 3)
    ]
    one, two, three = (
        [(part.name, part.read_bytes()) for part in sorted(Path(s.output).glob("part-*.parquet"))]
        for s in summaries
    )
    assert one == two == three
    assert 1 == len({summary.checksum for summary in summaries})
    return summaries


@pytest.mark.parametrize(("temperature", "n"), [(0, 1), (100, 1), (100, 3)])
def test_one_two_and_three_workers_write_the_same_bytes(job, temperature, n):
    """The SHA-256 of every part and the token checksum do not know how many workers there were."""
    sampling = SamplingParams(max_tokens=4, temperature=temperature, n=n)
    asked = {"sampling": sampling, "output_columns": ["generated_tokens"], "part_rows": 25}
    summaries = by_workers(job, **asked)
    table = ds.dataset(summaries[0].output).to_table()
    repeated = len(table) - len(set(map(str, table["generated_tokens"].to_pylist())))
    assert (repeated > 40) == (temperature == 0), "rows were sampled, or were not"


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "gemma3_270m"])
def test_real_models_write_the_same_bytes_on_any_number_of_workers(job, request, name):
    """Log-probabilities, which follow from all logits, among them; in pools that preempt."""
    asked = {
        "model": request.getfixturevalue(name),
        "sampling": SamplingParams(max_tokens=24, temperature=0.8, logprobs=5, ignore_eos=True),
        "engine": EngineConfig(
            threads=1, max_model_len=256, max_num_seqs=8, block_size=4, kv_pool_tokens=160
        ),
        "shard_rows": 4,
    }
    summaries = by_workers(job, **asked)
    assert 0 == summaries[0].num_errors
    assert 0 < sum(worker.preemptions for worker in summaries[0].workers)
    assert 1 < sum(worker.rows > 0 for worker in summaries[2].workers)


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
    assert [False, False, True] == ["is lost" in note for note in notes]


def test_every_kind_of_row_error_leaves_the_row_its_columns_and_the_others_done(job, tmp_path):
    """One job has them all; each says what was wrong, and good rows among them are answered."""
    system = {"role": "system", "content": "row 4"}
    rows = [
        (b"row 0", None, None, None),
        (None, None, None, "prompt and messages are null"),
        (b"\xff 2", None, None, "prompt is not valid UTF-8"),
        (b"row 3", "[{", None, "messages: invalid JSON at position"),
        (b"row 4", json.dumps([system]), None, "chat template: system 4 is refused"),
        (b"row 5 " * 999, None, None, "prompt too long: "),
        (b"row 6", None, '{"temperature": -1}', "temperature: -1"),
        (b"row 7", None, '{"logprobs": 1}', "add logprobs to cluster.output_columns"),
        (b"ignored", json.dumps([{"role": "user", "content": "row 8"}]), None, None),
    ]
    prompts, messages, sampling, errors = zip(*rows, strict=True)
    text = pa.array(prompts, pa.binary()).view(pa.string())
    columns = {"id": range(9), "prompt": text, "messages": messages, "sampling_params": sampling}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('system 4 is refused') }}"
        "{% endif %}{{ messages[0].content }}"
    )
    engine = ENGINE.model_copy(update={"chat_template": template})
    summary = run_job(job(tmp_path / "rows.parquet", engine=engine), lambda _: None)
    columns = ["id", "sampling_params", "generated_text", "error"]
    found = ds.dataset(summary.output).to_table(columns).to_pylist()
    assert list(range(9)) == [row["id"] for row in found]
    assert list(sampling) == [row["sampling_params"] for row in found]
    assert ["P", "X"] == [found[i]["generated_text"] for i in (0, 8)]
    assert errors.count(None) == [row["error"] for row in found].count(None)
    assert [] == [
        row for row, e in zip(found, errors, strict=True) if (e or "") not in (row["error"] or "")
    ]
    assert (9, 7) == (summary.num_rows, summary.num_errors)


def test_rows_with_several_completions(data, job, tmp_path):
    """A row has as many as it asks for, those of an engine alone; one that asks for more fails."""
    sampling = SamplingParams(max_tokens=4, temperature=100)
    asked = [None, '{"n": 3}', '{"n": 4}', '{"n": 2}']
    columns = {"prompt": [f"row {i}" for i in range(4)], "sampling_params": asked}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    summary = run_job(job(tmp_path / "rows.parquet", sampling=sampling, max_n=3), lambda _: None)
    rows = ds.dataset(summary.output).to_table().to_pylist()
    expected = [
        [brief(each) for each in (first, *first.others)][:n]
        for first, n in zip(
            completions(data, columns["prompt"], replace(sampling, n=3)), (1, 3, 0, 2), strict=True
        )
    ]
    assert expected == [row["completions"] or [] for row in rows]
    assert 3 == len({str(each) for each in expected[1]})
    assert expected[1][0]["text"] == rows[1]["generated_text"]
    assert "n 4 is more than cluster.max_n 3" in rows[2]["error"]
    assert (None, None) == (rows[2]["completions"], rows[2]["generated_text"])
    tokens = sum(each["num_generated_tokens"] for row in expected for each in row)
    assert (4, 1, tokens) == (summary.num_rows, summary.num_errors, summary.generated_tokens)


def brief(completion):
    """An element of the column of completions."""
    return {
        "text": completion.text,
        "finish_reason": str(completion.finish_reason),
        "num_generated_tokens": len(completion.token_ids),
    }


def test_workers_end_with_the_job(job):
    """No actor goes on after a job."""
    run_job(job(), lambda _: None)
    _, alive = psutil.wait_procs(worker_processes(), timeout=10)
    assert [] == alive


def test_more_workers_than_the_cluster_holds_are_refused(job, tmp_path):
    """Needed and available CPUs are named; nothing is written."""
    with pytest.raises(
        JobConfigError, match=r"workers: 50 with 1 threads each need 50 CPUs.* has 3 "
    ):
        run_job(job(workers=50), lambda _: None)
    assert not (tmp_path / "out").exists()

"""The worker itself, without Ray, around a real engine."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from cluster.actor import Worker, WorkerSpec
from cluster.model_sender import ModelReader
from cluster.statistics import SAMPLES_SCHEMA, WORKERS_SCHEMA
from cluster.worker_record import WorkerRecord
from worker.cache_folder import cache_folder
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams
from worker.model_source import model_sha256


@pytest.fixture
def spec(data):
    """The chain model, one thread."""
    model = data / "cases/chain-llama.gguf"
    return WorkerSpec(
        model=str(model),
        sha256=model_sha256(model),
        engine=EngineConfig(threads=1),
        sampling=SamplingParams(max_tokens=4),
        max_n=1,
        optional=frozenset(),
        memory_reserve_bytes=None,
    )


def payload(*prompts):
    """The requests of a shard."""
    batch = pa.record_batch({"prompt": pa.array([p.encode() for p in prompts], pa.large_binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def test_a_worker_fills_every_column_of_the_statistics(spec):
    """A counter that the engine renames must not become a column of nulls."""

    async def work():
        worker = Worker("worker-0")
        identity = await worker.identify()
        loaded = await worker.load(spec)
        await worker.run_shard(0, 2, payload("row 0", "row 1"), 1)
        report = await worker.report()
        worker._loop.stop()
        return identity, loaded, report

    identity, loaded, report = asyncio.run(work())
    assert 0 < loaded["reserved_bytes"] < loaded["available_bytes"]
    assert loaded["kv_pool"].startswith("8,192 tokens (32 rows of 256 tokens)")
    record = WorkerRecord("worker-0", 1, identity, loaded["numerics"], loaded["load_s"])
    record.totals = report["totals"]
    row = record.as_row()
    assert {"loss_reason"} == {name for name in WORKERS_SCHEMA.names if row[name] is None}
    assert set(SAMPLES_SCHEMA.names) == set(report["samples"][-1])
    assert None not in report["samples"][-1].values()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A node of its own: a cache folder with kernels and nothing else."""
    kernels, folder = cache_folder() / "kernels", tmp_path / "cache"
    kernels.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    (folder / "kernels").symlink_to(kernels)
    monkeypatch.setenv("TOKENMILL_CACHE", str(folder))
    return folder


class Sender:
    """A driver in this process that has the chain model."""

    def __init__(self, data):
        self.reader = ModelReader(str(data / "cases/chain-llama.gguf"))

    def files(self):
        """What there is."""
        return self.reader.files()

    def chunks(self, index, start, end):
        """All at once."""
        yield self.reader.read(index, start, end - start)


def load(spec, *sender):
    """A worker's answer to load."""

    async def work():
        worker = Worker("worker-0")
        before = await worker.report()
        answer = await worker.load(spec, *sender)
        if worker._loop is not None:
            worker._loop.stop()
        return before, answer

    return asyncio.run(work())


@pytest.mark.parametrize("name", ["missing.gguf", "cases/tiny-llama.gguf"])
def test_a_node_without_the_model_says_why_and_takes_it_from_the_driver(spec, data, cache, name):
    """There is no such file, or it is another model; afterwards nobody is asked."""
    spec = replace(spec, model=str(data / name))
    before, answer = load(spec)
    assert 0 == before["arrived"]
    assert ["lacks_model"] == list(answer)
    assert ("no such file" in answer["lacks_model"]) == name.startswith("missing")
    assert "numerics" in load(spec, Sender(data))[1]
    assert [cache / "received" / spec.sha256] == [
        path for path in (cache / "received").iterdir() if path.is_dir()
    ]
    assert "numerics" in load(spec)[1]


def test_a_model_at_fault_is_an_answer_not_a_death(spec, data, cache):
    """Class and text of the error come back, so that the driver can end the job with it."""
    sender = Sender(data)
    sender.reader = ModelReader(str(data / "cases/tiny-llama.gguf"))
    answer = load(spec, sender)[1]
    assert "ModelSourceError" == answer["error_class"]
    assert "SHA-256" in answer["error"]

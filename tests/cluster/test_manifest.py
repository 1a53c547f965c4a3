import json
import tomllib
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"prompt_column": "q"}, "prompt_column"),
        ({"sampling": SamplingParams(temperature=1.0)}, "sampling"),
        ({"engine": EngineConfig(job_seed=1)}, "seed"),
        ({"engine": EngineConfig(chat_template="x")}, "chat_template"),
        ({"engine": EngineConfig(max_model_len=9)}, "max_model_len"),
    ],
)
def test_whatever_can_change_a_row_changes_the_fingerprint(change, key):
    """One setting, one key that differs."""
    from dataclasses import replace

    one, two = of(JOB), of(replace(JOB, **change))
    assert {key} == {name for name in one if one[name] != two[name]}


def test_speed_settings_are_not_in_the_fingerprint():
    """Threads and batch size change no row."""
    from dataclasses import replace

    assert of(JOB) == of(replace(JOB, engine=EngineConfig(threads=3, max_num_seqs=2)))


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

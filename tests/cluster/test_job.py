from pathlib import Path

import pytest

from cluster.config import ClusterConfig
from cluster.errors import JobConfigError
from cluster.job import Job
from cluster.optional_column import OptionalColumn
from worker.engine.sampling_params import SamplingParams

PATHS = {"input": "in", "output": "out", "model": "m.gguf"}


@pytest.mark.parametrize("name", PATHS)
def test_a_tilde_is_the_users_home_in_every_path(name):
    """Input, output and model alike; a tilde elsewhere is a character."""
    home = Job(**PATHS | {name: "~/a~b/*"})
    assert str(Path.home() / "a~b/*") == getattr(home, name)
    assert "a/~" == getattr(Job(**PATHS | {name: "a/~"}), name)


@pytest.mark.parametrize(
    ("k", "columns", "asked", "expected"),
    [
        (None, (), False, None),
        (None, ("logprobs",), True, 0),
        (2, (), True, 2),
        (2, ("logprobs",), True, 2),
    ],
)
def test_a_column_of_log_probabilities_is_never_empty(k, columns, asked, expected):
    """Asked for by the sampling parameters or by name; by name alone it has the sampled token."""
    cluster = ClusterConfig(output_columns=columns)
    job = Job(**PATHS, sampling=SamplingParams(logprobs=k), cluster=cluster)
    assert asked == (OptionalColumn.LOGPROBS in job.optional_columns)
    assert expected == job.row_defaults.logprobs


@pytest.mark.parametrize(
    ("n", "max_n", "columns", "asked"),
    [
        (1, None, (), False),
        (1, 1, (), False),
        (1, None, ("completions",), True),
        (3, None, (), True),
        (1, 2, (), True),
    ],
)
def test_a_column_of_completions_is_there_when_a_row_may_have_several(n, max_n, columns, asked):
    """Or when it is asked for by name; a row may have as many as the job's own rows have."""
    cluster = ClusterConfig(max_n=max_n, output_columns=columns)
    job = Job(**PATHS, sampling=SamplingParams(n=n), cluster=cluster)
    assert asked == (OptionalColumn.COMPLETIONS in job.optional_columns)
    assert (max_n or n) == job.max_n


def test_more_completions_than_a_row_may_have_are_refused():
    """Every row would be an error; both numbers and both settings are named."""
    asked = {"sampling": SamplingParams(n=3), "cluster": ClusterConfig(max_n=2)}
    with pytest.raises(JobConfigError, match=r"sampling\.n: 3 is more than cluster\.max_n 2"):
        Job(**PATHS, **asked)


@pytest.mark.parametrize("path", ["", "a\0b"])
@pytest.mark.parametrize("name", PATHS)
def test_what_cannot_be_a_path_is_refused_by_name(name, path):
    """Empty means no folder, not the current one; no file name holds a NUL."""
    with pytest.raises(JobConfigError, match=name):
        Job(**PATHS | {name: path})

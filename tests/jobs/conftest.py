"""Fixtures of the jobs tests: the small models and inputs, and the command line run both ways."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jobs.cli import app

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cases(data) -> Path:
    """The trouble cases."""
    return data / "cases"


@pytest.fixture(scope="session")
def chain_llama(cases) -> Path:
    """A model that answers 'yes' after '?', 'No' after '!', a letter after a digit."""
    return cases / "chain-llama.gguf"


@pytest.fixture
def invoke():
    """Call the command line in this process."""

    def invoke(*arguments: object, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return invoke


@pytest.fixture
def tokenmill():
    """Run the command line as a process of its own, from the repository's root."""

    def run(*arguments: object, **kwargs) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "jobs.cli", *map(str, arguments)]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, **kwargs
        )

    return run


@pytest.fixture
def write_config(tmp_path, chain_llama):
    """Write a configuration of a job on the chain model, with these keys put over it."""

    def write(input_: object, extra: str = "") -> Path:
        path = tmp_path / "job.yaml"
        text = f"model: {chain_llama}\ninput: {input_}\noutput: {tmp_path / 'out'}\n"
        path.write_text(text + extra, encoding="utf-8")
        return path

    return write

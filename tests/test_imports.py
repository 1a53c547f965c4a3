"""Which package may import which, and what stays unimported until it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

HEAVY = ("ray", "numba", "pyarrow", "numpy", "tokenizers", "jinja2", "rich", "pydantic", "yaml")


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running the code."""
    script = f"{code}\nimport sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("module", ["kvpool", "worker", "worker.engine.engine", "worker.gguf"])
def test_worker_leaves_ray_unimported(module):
    """The engine is a library without Ray."""
    assert "ray" not in modules_after(f"import {module}")


def test_command_line_imports_nothing_heavy():
    """Help is quick because each verb imports what it needs only when it runs."""
    assert set() == modules_after("import jobs.cli") & set(HEAVY)


def test_kvpool_imports_no_package_above_it():
    """The KV pool knows nothing of engines, clusters and jobs."""
    above = {"worker", "cluster", "jobs"}
    assert set() == modules_after("import kvpool.pool, kvpool.kv_cache") & above


def test_imports_go_down():
    """Import-linter's contracts of pyproject.toml hold: jobs > cluster > worker > kvpool."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout

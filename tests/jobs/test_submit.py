"""What a submission uploads; case 527 of the trouble cases: the model lies in the folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ray._private.runtime_env.packaging import create_package

from cluster.errors import JobConfigError
from cluster.working_dir import UPLOAD_LIMIT_BYTES, checked_upload

from .conftest import ROOT

MEBIBYTE = 1 << 20


@pytest.fixture
def folder(tmp_path):
    """A user's folder: a job, a script below, and a sparse model of 600 MiB."""
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    (folder / "job.yaml").write_text("model: model.gguf\n")
    (folder / "scripts/prepare.py").write_text("print('x')\n")
    with (folder / "model.gguf").open("wb") as model:
        model.truncate(600 * MEBIBYTE)
    return folder


def test_a_model_in_the_folder_is_refused_with_size_limit_and_largest_file(folder):
    """Before Ray is asked; the message says what to exclude and what to give instead."""
    with pytest.raises(JobConfigError) as caught:
        checked_upload(folder)
    message = str(caught.value)
    for part in ("600.0 MiB in 3 files", "limit is 100.0 MiB", "model.gguf (600.0 MiB)"):
        assert part in message
    assert ".rayignore" in message
    assert "absolute paths" in message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".rayignore", "*.gguf\n"),
        (".gitignore", "/model.gguf\n"),
        (".rayignore", "model.*"),
    ],
)
def test_what_ray_leaves_out_does_not_count(folder, name, text):
    """Its patterns are Ray's own."""
    (folder / name).write_text(text)
    upload = checked_upload(folder)
    assert (3, "job.yaml") == (upload.num_files, str(upload.largest))


def test_the_excludes_that_ship_keep_models_and_data_out(folder):
    """configs/runtime_env.yaml with a folder of one's own."""
    (folder / "data").mkdir()
    for name in ("data/rows.csv", "prompts.parquet", "w.safetensors"):
        (folder / name).write_bytes(b"x")
    upload = checked_upload(folder, ROOT / "configs/runtime_env.yaml")
    assert 2 == upload.num_files


def test_the_size_is_that_of_the_package(tmp_path):
    """To the byte, but for what ends a zip file and for empty folders."""
    folder = tmp_path / "project"
    (folder / "inner").mkdir(parents=True)
    for number in range(20):
        (folder / f"inner/file-{number}.txt").write_bytes(b"x" * 1000 * number)
    create_package(str(folder), tmp_path / "package.zip", include_gitignore=True)
    assert (tmp_path / "package.zip").stat().st_size - 22 == checked_upload(folder).n_bytes


def test_this_repository_may_be_submitted(tmp_path):
    """Whatever lies around in a checkout: models, runs, environments."""
    for name in (".rayignore", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("runs/a/part-00000.parquet", "models/m.bin", ".venv/lib/x.so", "m.safetensors"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / name).open("wb") as file:
            file.truncate(UPLOAD_LIMIT_BYTES)
    assert 2 == checked_upload(tmp_path).num_files


@pytest.mark.parametrize("text", ["excludes: model.gguf", "- a", "{", "excludes: [1]"])
def test_a_runtime_env_that_is_none_is_named(folder, tmp_path, text):
    """File and what was expected."""
    path = tmp_path / "env.yaml"
    path.write_text(text)
    with pytest.raises(JobConfigError, match=r"env\.yaml"):
        checked_upload(folder, path)


def test_the_runtime_env_that_ships_has_excludes_alone():
    """Ray takes what else there is for settings of the job."""
    assert ["excludes"] == list(yaml.safe_load((ROOT / "configs/runtime_env.yaml").read_text()))


def _submit(tmp_path, *arguments):
    """The command, in an environment whose ray prints its arguments."""
    (tmp_path / "bin").mkdir()
    ray = tmp_path / "bin/ray"
    ray.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n')
    ray.chmod(0o755)
    code = (
        "import jobs.submit\n"
        f"jobs.submit._ray = lambda: {str(ray)!r}\n"
        "from jobs.cli import main\n"
        f"main({['submit', *arguments]!r})\n"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_becomes_rays_own(tmp_path):
    """Options, the job's command with options of its own, and the exit code."""
    (tmp_path / "small").mkdir()
    (tmp_path / "env.yaml").write_text("excludes: [x]")
    options = ["--working-dir", "small", "--address", "http://h:8265", "--runtime-env", "env.yaml"]
    script = ["python", "jobs/batch.py", "--config", "a b.yaml", "--no-wait"]
    done = _submit(tmp_path, *options, "--no-wait", "--", *script)
    assert 7 == done.returncode, done.stderr
    first, passed = done.stdout.split("\n", 1)
    assert first.startswith("uploading at most 0.0 MiB in 0 files of small")
    expected = ["job", "submit", "--working-dir", "small", "--address", "http://h:8265"]
    expected += ["--no-wait", "--runtime-env", "env.yaml", "--", *script]
    assert "|".join([*expected, ""]) == passed


def test_a_folder_that_is_too_large_ends_the_command_at_once(folder, tmp_path):
    """Exit 2, in one line, and Ray is not called."""
    done = _submit(tmp_path, "--working-dir", str(folder), "--", "python", "x.py")
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n")
    assert "model.gguf (600.0 MiB)" in done.stderr
    assert Path(folder / "model.gguf").stat().st_size == 600 * MEBIBYTE

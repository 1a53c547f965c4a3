"""``tokenmill run``: what it answers to bad input, and a whole job end to end."""

import os
import re
import shutil
import signal
import subprocess
import sys
from time import sleep

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .conftest import ROOT

LETTERS = "PQRSTUVWXZ"
"""What the chain model answers to a last digit that is a token by itself."""

MERGED = ("00", "12")
"""Numbers that are one token; after those it answers nothing."""


@pytest.mark.parametrize(
    ("case", "input_", "code", "words"),
    [
        ("411-duplicate-user-columns", "rows.parquet", 2, ["rows.parquet", "score"]),
        ("413-output-names-taken", "rows.parquet", 2, ["generated_text", "output_prefix"]),
        ("423-footer-length-wrong", "input", 4, ["b.parquet"]),
        ("425-schemas-conflict", "input", 2, ["score", "a.parquet", "b.parquet", "int64"]),
        ("427-encrypted-file", "rows.parquet", 4, ["rows.parquet", "encrypted"]),
        ("437-prompt-of-wrong-type", "ints.parquet", 2, ["ints.parquet", "prompt", "int64"]),
        ("437-prompt-of-wrong-type", "lists.parquet", 2, ["lists.parquet", "prompt", "list"]),
        ("439-half-written-input", "input", 4, ["b.parquet"]),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    invoke, write_config, cases, tmp_path, case, input_, code, words
):
    """One clear line, the right exit code, and no output folder is left."""
    result = invoke("run", write_config(cases / case / input_))
    assert code == result.exit_code, result.stderr
    message = result.stderr.splitlines()[-1]
    assert message.startswith("tokenmill: ")
    assert [] == [word for word in words if word not in message]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("extra", "code", "word"),
    [
        ("engine: {thread: 1}\n", 2, "did you mean engine.threads?"),
        ("sampling: {top_p: 2}\n", 2, "top_p: 2"),
        (
            "sampling: {n: 3}\ncluster: {max_n: 2}\n",
            2,
            "sampling.n: 3 is more than cluster.max_n 2",
        ),
        ("cluster: {max_n: 0}\n", 2, "max_n"),
        (
            "engine: {kv_pool_share: 0.5, kv_pool_tokens: 64}\n",
            2,
            "kv_pool_tokens and kv_pool_share all set",
        ),
        ("prompt_column: nothere\n", 2, "nothere"),
        (f"model_sha256: {'a' * 64}\n", 4, "SHA-256"),
    ],
)
def test_a_bad_configuration_is_refused(invoke, write_config, cases, tmp_path, extra, code, word):
    """Keys, values and columns are checked before a worker starts."""
    result = invoke("run", write_config(cases / "small.parquet", extra))
    assert code == result.exit_code, result.stderr
    assert word in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("103-html-instead-of-model", "model.gguf"),
        ("151-architecture-unknown", "supported"),
        ("nowhere", "nowhere"),
    ],
)
def test_a_model_that_cannot_be_used_exits_4(invoke, write_config, cases, tmp_path, model, word):
    """The model's header is read before Ray starts."""
    config = write_config(cases / "small.parquet")
    result = invoke("run", config, "--model", cases / model / "model.gguf")
    assert 4 == result.exit_code, result.stderr
    assert word in result.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_messages_without_any_template_exit_4(invoke, write_config, cases):
    """The error says how to give a template."""
    case = cases / "315-no-template"
    result = invoke("run", write_config(case / "rows.parquet"), "--model", case / "model.gguf")
    assert 4 == result.exit_code, result.stderr
    assert "chat_template" in result.stderr


def test_a_foreign_output_folder_is_left_alone(invoke, write_config, cases, tmp_path):
    """Somebody else's files stay as they are."""
    notes = tmp_path / "out" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    result = invoke("run", write_config(cases / "small.parquet"))
    assert 2 == result.exit_code
    assert str(tmp_path / "out") in result.stderr
    assert ["notes.txt"] == [path.name for path in (tmp_path / "out").iterdir()]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ([], None),
        (["--retry-errors"], []),
        (["--retry-errors", "worker"], ["worker"]),
        (["--retry-errors", "worker", "too_long", "--threads", "1"], ["worker", "too_long"]),
        (["--retry-errors=worker"], ["worker"]),
        (["--threads", "1", "--retry-errors", "--workers", "1"], []),
    ],
)
def test_retry_errors_takes_any_number_of_kinds(
    invoke, write_config, cases, monkeypatch, options, kinds
):
    """None of them means all; other options keep their values."""
    asked = []
    monkeypatch.setattr("jobs.run.run_job", lambda _, kinds: asked.append(kinds))
    result = invoke("run", write_config(cases / "small.parquet"), *options)
    assert (0, [kinds]) == (result.exit_code, asked), result.stderr


def test_an_unknown_kind_of_error_is_refused(invoke, write_config, cases, tmp_path):
    """The known ones are named; nothing is started."""
    result = invoke("run", write_config(cases / "small.parquet"), "--retry-errors", "workers")
    assert 2 == result.exit_code
    assert "'workers' is no kind of row error; there are input, sampling_" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.ray
def test_rows_in_error_are_done_again(tokenmill, write_config, cases):
    """Those of the kind that is named; without any that is said, and the exit code is 0."""
    config = write_config(cases / "401-null-prompts" / "rows.parquet")
    first = tokenmill("run", config, "--workers", 1)
    none = tokenmill("run", config, "--workers", 1, "--retry-errors", "worker", "numbers")
    again = tokenmill("run", config, "--workers", 1, "--retry-errors")
    assert [0] * 3 == [done.returncode for done in (first, none, again)], again.stderr
    assert "no rows in error (numbers, worker) to try again" in none.stderr
    assert "trying 2 rows in error" in again.stderr
    assert "6 rows (4 of them before)" in again.stdout.splitlines()[-1]
    said = [line for done in (first, none, again) for line in done.stdout.splitlines()]
    assert 1 == len({line for line in said if line.startswith("checksum")})


@pytest.mark.ray
def test_a_job_end_to_end(tokenmill, write_config, cases, tmp_path):
    """Sixty rows over two workers: each row once, in order, and a summary that can be read."""
    config = write_config(cases / "rows-60", "sampling: {max_tokens: 4}\n")
    done = tokenmill("run", config, "--workers", 2, "--threads", 1)
    assert 0 == done.returncode, done.stderr
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [f"row {number:02}" for number in range(60)] == [row["id"] for row in rows]
    expected = ["" if f"{n:02}" in MERGED else LETTERS[n % 10] for n in range(60)]
    assert expected == [row["generated_text"] for row in rows]
    summary = done.stdout.splitlines()
    assert re.fullmatch(r"done: 60 rows in [\d.]+ s, 0 row errors", summary[-1])
    for words in ("time to first token", "peak memory", "checksum", "worker-1", "read it with"):
        assert any(words in line for line in summary), words
    assert "Traceback" not in done.stderr


@pytest.mark.ray
def test_row_errors_alone_exit_0_and_with_fail_on_errors_3(
    tokenmill, write_config, cases, tmp_path
):
    """All rows are done either way, and the summary counts the errors."""
    config = write_config(cases / "401-null-prompts" / "rows.parquet")
    done = tokenmill("run", config, "--workers", 1)
    assert 0 == done.returncode, done.stderr
    assert done.stdout.rstrip().endswith("2 row errors")
    other = tmp_path / "strict"
    strict = ("--output", other, "--workers", 1, "--set", "cluster.fail_on_errors=true")
    failed = tokenmill("run", config, *strict)
    assert 3 == failed.returncode, failed.stderr
    assert failed.stdout.rstrip().endswith("2 row errors")
    assert "fail_on_errors" in failed.stderr.splitlines()[-1]
    assert 6 == pq.read_table(other).num_rows


@pytest.mark.ray
@pytest.mark.parametrize("again", [0, 20])
def test_ctrl_c_exits_75(write_config, tmp_path, again):
    """A stopped job says so in one line, whatever signals follow, and all its processes end."""
    table = pa.table({"id": range(20_000), "prompt": [f"row {i}" for i in range(20_000)]})
    pq.write_table(table, tmp_path / "rows.parquet")
    config = write_config(tmp_path / "rows.parquet")
    process = subprocess.Popen(
        [sys.executable, "-m", "jobs.cli", "run", str(config), "--workers", "1"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    shown = []
    for line in process.stderr:
        shown.append(line)
        if "of 20,000 rows" in line:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    for _ in range(again):
        sleep(0.05)
        process.send_signal(signal.SIGTERM)
    shown += process.stderr.readlines()
    assert 75 == process.wait(timeout=60), shown
    assert "tokenmill: stopped by SIG" in shown[-1]
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    ended, alive = psutil.wait_procs(children, timeout=5)
    assert len(ended) > 3
    assert [] == alive


SIGNALLED_START = """
import os, signal, sys
import ray._raylet
from jobs.cli import main

connect, signals = ray._raylet.CoreWorker, int(sys.argv[2])

def connect_and_signal(*arguments):
    client = connect(*arguments)
    for _ in range(signals):
        os.kill(os.getpid(), signal.SIGINT)
    return client

ray._raylet.CoreWorker = connect_and_signal
main(["run", sys.argv[1], "--workers", "1"])
"""


@pytest.mark.ray
@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_while_ray_connects_exits_75(write_config, cases, tmp_path, signals):
    """The client that nobody holds then would crash at exit, in a thread of Ray's own."""
    config = write_config(cases / "small.parquet")
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED_START, str(config), str(signals)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (75, "tokenmill: stopped by SIGINT") == (done.returncode, done.stderr.splitlines()[-1])
    assert not (tmp_path / "out").exists()


def test_batch_script_is_run_by_another_name(tmp_path):
    """``python jobs/batch.py`` works from any folder, installed or not, with run's exit codes."""
    for command in (
        [sys.executable, ROOT / "jobs" / "batch.py"],
        [sys.executable, "-m", "jobs.batch"],
    ):
        done = subprocess.run(
            [*command, "--config", "nowhere.yaml", "--output", "out"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert 2 == done.returncode
        assert "tokenmill: nowhere.yaml: cannot be read: No such file or directory" in done.stderr


def test_batch_script_needs_no_python_path(tmp_path):
    """Run by its path alone, the script finds the packages beside it, whatever lies around."""
    copy = tmp_path / "copy"
    for package in ("jobs", "cluster", "worker", "kvpool"):
        shutil.copytree(ROOT / package, copy / package)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, copy / "jobs" / "batch.py", "--config", "nowhere.yaml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (2, "tokenmill: nowhere.yaml: cannot be read") == (done.returncode, done.stderr[:39])


def test_configured_keys_are_the_job():
    """Every key of the configuration reaches the job under its own name."""
    from dataclasses import fields

    from cluster.job import Job
    from jobs.config import JobConfig

    assert set(JobConfig.model_fields) == {field.name for field in fields(Job)}

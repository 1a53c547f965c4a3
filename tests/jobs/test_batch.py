"""``ray job submit`` for real: a Ray head of its own, with a token, as the README describes it."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

import psutil
import pyarrow.parquet as pq
import pytest

from .conftest import ROOT

pytestmark = pytest.mark.ray

RAY, TOKENMILL = (Path(sys.executable).with_name(name) for name in ("ray", "tokenmill"))
MEBIBYTE = 1 << 20


class Head:
    """A running Ray head with token authentication, and a user in front of it."""

    def __init__(self, folder: Path, submitted: Path) -> None:
        self.folder = folder
        self.submitted = submitted
        self.environment = os.environ | {
            "HOME": str(folder),  # where Ray keeps the token
            "PATH": f"{RAY.parent}{os.pathsep}{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            self.environment.pop(name, None)  # an embedded Ray of another test leaves them behind
        ports = free_ports(6)
        self.url = f"http://127.0.0.1:{ports[1]}"
        self.ray("get-auth-token", "--generate")
        options = {
            "--port": ports[0],
            "--dashboard-port": ports[1],
            "--dashboard-agent-listen-port": ports[2],
            "--dashboard-agent-grpc-port": ports[3],
            "--metrics-export-port": ports[4],
            "--ray-client-server-port": ports[5],
            "--min-worker-port": 0,
            "--max-worker-port": 0,
            "--node-ip-address": "127.0.0.1",
            "--num-cpus": 2,
            "--object-store-memory": 100 * MEBIBYTE,
            "--temp-dir": folder / "ray",
        }
        flags = [str(part) for option in options.items() for part in option]
        self.log = (folder / "head.log").open("wb")
        self.process = subprocess.Popen(
            [RAY, "start", "--head", "--block", *flags],
            env=self.environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when the head takes jobs; it needs some ten seconds."""
        deadline = monotonic() + 120
        while self.ray("job", "list", "--address", self.url).returncode != 0:
            assert self.process.poll() is None, (self.folder / "head.log").read_text()
            assert monotonic() < deadline, (self.folder / "head.log").read_text()

    def ray(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        """Call the ray command as the user does."""
        return self.call(RAY, *arguments, **environment)

    def call(self, *command: object, **environment: str) -> subprocess.CompletedProcess:
        """Run a command in the user's environment, from the repository's root."""
        return subprocess.run(
            [*map(str, command)],
            cwd=ROOT,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def submit(self, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        """The submission of the README, with these arguments of batch.py."""
        script = ("python", "jobs/batch.py", *arguments)
        options = ("--address", self.url, "--working-dir", self.submitted)
        return self.call(TOKENMILL, "submit", *options, "--", *script, **environment)

    def driver_exit_code(self, submission: subprocess.CompletedProcess) -> str:
        """The job's own exit code, read as docs/reliability.md shows."""
        job = re.search(r"raysubmit_\w+", submission.stdout)[0]
        code = (
            "from ray.job_submission import JobSubmissionClient as Client\n"
            f"print(Client({self.url!r}).get_job_info({job!r}).driver_exit_code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def uploads(self) -> list[Path]:
        """All that Ray unpacked of the submitted folders, whatever it was."""
        return list(self.folder.glob("ray/session_2*/runtime_resources/working_dir_files/*/**/*"))

    def stop(self) -> None:
        """End the head and all that it started, and nothing else."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        for process in started:
            if process.is_running():
                process.kill()
        self.log.close()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def checkout(folder: Path) -> Path:
    """A copy of what the repository's root holds for a submit, and a huge model beside it."""
    folder.mkdir()
    for package in ("jobs", "cluster", "worker", "kvpool", "configs"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignore)
    for name in (".rayignore", ".gitignore", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    with (folder / "model.gguf").open("wb") as model:
        model.truncate(600 * MEBIBYTE)
    return folder


@pytest.fixture(scope="module")
def head():
    """One head for all tests of this file; its paths are short, as its sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="tm-", dir="/tmp"))
    running = Head(folder, checkout(folder / "checkout"))
    yield running
    running.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def config(tmp_path, chain_llama, cases) -> Path:
    """A job over sixty rows whose output is relative."""
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: {chain_llama}\ninput: {cases / 'rows-60'}\noutput: runs/demo\n"
        "sampling: {max_tokens: 4}\nengine: {threads: 1}\ncluster: {workers: 2}\n"
    )
    return path


def test_a_submitted_job_runs_and_leaves_its_output(head, config, tmp_path):
    """The command of the README, from a folder that holds a model of 600 MiB."""
    output = tmp_path / "out"
    submission = head.submit("--config", config, "--output", output)
    assert 0 == submission.returncode, submission.stdout + submission.stderr
    assert "0" == head.driver_exit_code(submission)
    assert 60 == pq.read_table(output).num_rows
    assert re.search(r"^done: 60 rows in [\d.]+ s, 0 row errors$", submission.stdout, re.M)
    uploaded = [path for path in head.uploads() if path.is_file()]
    assert sum(path.stat().st_size for path in uploaded) < 5 * MEBIBYTE
    assert [] == [path for path in uploaded if path.suffix == ".gguf"]


def test_an_edit_compiles_kernels_again_only_if_it_is_to_kernels(head, config, tmp_path):
    """Ray unpacks each edited folder to another path; its workers compile each kernel once."""

    def submit(name):
        submission = head.submit("--config", config, "--output", tmp_path / name)
        assert 0 == submission.returncode, submission.stdout + submission.stderr
        workers = pq.read_table(tmp_path / name / "_stats" / "workers.parquet")
        return sum(workers["kernels_compiled"].to_pylist())

    def edit(file):
        with (head.submitted / file).open("a") as source:
            source.write("# edited\n")

    edit("worker/kernels/flat.py")
    compiled = submit("kernel")
    edit("worker/engine/engine.py")
    assert (True, 0) == (compiled > 0, submit("other"))


def test_a_relative_output_is_refused(head, config):
    """The message names the folder in Ray's cache where it would have landed."""
    submission = head.submit("--config", config)
    assert 1 == submission.returncode  # whatever ours was
    assert "2" == head.driver_exit_code(submission)
    line = next(line for line in submission.stdout.splitlines() if "tokenmill: " in line)
    assert "output runs/demo" in line
    assert "working_dir_files" in line
    assert "absolute path" in line


def test_exit_codes_reach_ray(head, config, tmp_path):
    """A model that is not there is exit code 4 in Ray's record of the job."""
    submission = head.submit(
        "--config", config, "--output", tmp_path / "out", "--model", "/nowhere.gguf"
    )
    assert "4" == head.driver_exit_code(submission)
    assert "/nowhere.gguf" in submission.stdout


def test_without_the_token_nothing_runs(head, config, tmp_path):
    """Who forgets the token is told so by Ray, and how to mend it."""
    nobody = tmp_path / "nobody"
    nobody.mkdir()
    submission = head.submit("--config", config, HOME=str(nobody))
    assert 0 != submission.returncode
    assert "couldn't find an authentication token" in submission.stderr
    assert "~/.ray/auth_token" in submission.stderr

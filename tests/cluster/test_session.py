import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from cluster.errors import JobConfigError, JobStoppedError
from cluster.session import embedded_cpus, ray_session, refuse_paths_in_package

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def run_program(text):
    """Run Python code in a process of its own, from the project's folder."""
    command = [sys.executable, "-c", text]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def test_relative_paths_are_fine_outside_a_ray_job(monkeypatch):
    """On one's own machine the working directory is one's own."""
    monkeypatch.delenv(JOB, raising=False)
    refuse_paths_in_package("in", "out")


@pytest.mark.parametrize(
    ("source", "output", "named"),
    [
        ("/data/in", "out", "out"),
        ("../in", "/data/out", "../in"),
        ("a/../../in", "/data/out", "../in"),
    ],
)
def test_relative_paths_under_a_ray_job_name_where_they_lead(monkeypatch, source, output, named):
    """An output in the package, or an input beside it, is refused with the folder it stands for."""
    monkeypatch.setenv(JOB, json.dumps({}))
    with pytest.raises(JobConfigError) as caught:
        refuse_paths_in_package(source, output)
    assert os.path.normpath(Path.cwd() / named) in str(caught.value)
    assert "absolute path" in str(caught.value)


def test_an_input_inside_the_submitted_folder_is_fine(monkeypatch):
    """It was uploaded with the job."""
    monkeypatch.setenv(JOB, json.dumps({}))
    refuse_paths_in_package("configs/prompts.parquet", "/data/out")


def test_a_cluster_that_does_not_answer_fails_quickly(monkeypatch):
    """The address is named, and what to do."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(JobConfigError, match=f"{address}.*RAY_ADDRESS"), ray_session(1):
        pass


def test_sigterm_while_ray_starts_is_a_stop(monkeypatch):
    """Ray's own handler would end the process with code 1; ours is back afterwards."""

    def init(**_):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(JobStoppedError, match="SIGTERM"), ray_session(1):
        pass
    assert before == signal.getsignal(signal.SIGTERM)


def test_sigterm_waits_for_ray_where_the_process_ends():
    """Neither Ray's handler nor the default one, which its shutdown sets, meets the signal.

    In a process of its own: the signal goes to any thread that does not hold it back.
    """
    program = """
import os, signal
import ray
from cluster.session import ray_session

met = []

def ray_sets_a_handler(*_, **__):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)

os.environ["RAY_ADDRESS"] = "auto"
ray.init = ray.shutdown = ray_sets_a_handler
signal.signal(signal.SIGTERM, lambda *_: met.append("ours"))
with ray_session(1, process_ends=True):
    print(met)
print(met, flush=True)
os._exit(0)
"""
    done = run_program(program)
    assert (0, "['ours']\n['ours', 'ours']\n") == (done.returncode, done.stdout)


@pytest.mark.ray
def test_no_process_of_ray_is_left_where_the_process_ends(monkeypatch):
    """They are killed, those that Ray's node started as well, without Ray's own shutdown."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    program = """
import os, psutil
from cluster.session import ray_session
with ray_session(1, process_ends=True):
    started = psutil.Process().children(recursive=True)
ended, alive = psutil.wait_procs(started, timeout=5)
assert len(ended) > 3 and not alive, (ended, alive)
print("none", flush=True)
os._exit(3)
"""
    done = run_program(program)
    assert (3, "none\n") == (done.returncode, done.stdout), done.stderr


def test_a_ray_that_cannot_start_is_a_stop(monkeypatch):
    """Full or unwritable temporary folders are the machine's fault: no traceback, exit 75."""

    def init(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(JobStoppedError, match=r"No space left.*/tmp"), ray_session(1):
        pass


@pytest.mark.ray
def test_an_embedded_ray_refuses_whoever_has_not_its_token(monkeypatch, tmp_path):
    """Ray lets everybody who reaches it run code, unless it asks for a token."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_session(1):
        address = ray.get_runtime_context().gcs_address
        others = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        without = others | {"HOME": str(tmp_path)}
        wrong = without | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
        right = wrong | {"RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]}
        answers = [health_check(address, client) for client in (without, wrong, right)]
    assert [True, True, False] == ["InvalidAuthToken" in answer.stderr for answer in answers]
    assert [True, True, False] == [answer.returncode != 0 for answer in answers]


def health_check(address, environment):
    """Ask a Ray cluster whether it is well."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_an_embedded_ray_has_a_cpu_for_every_thread():
    """Two workers of three threads need six; by default the machine is shared out."""
    assert 6 == embedded_cpus(2, 3)
    assert embedded_cpus(None, None) == embedded_cpus(1, None)
    assert 100 == embedded_cpus(100, None)

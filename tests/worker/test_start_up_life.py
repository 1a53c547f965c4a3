import subprocess
import sys
from pathlib import Path

import pytest

from worker import start_up_life as module
from worker.start_up_life import StartUpLife

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """Seconds on the wall and of the CPU, as a test sets them."""
    times = {"wall": 0.0, "cpu": 0.0}
    monkeypatch.setattr(module, "monotonic", lambda: times["wall"])
    monkeypatch.setattr(module, "process_time", lambda: times["cpu"])
    return times


def test_a_process_that_only_answers_shows_no_life(clock):
    """The report itself takes a moment of CPU time each second."""
    life = StartUpLife()
    for second in range(1, 50):
        clock.update(wall=second, cpu=second * 0.005)
        assert 0 == life.look()


def test_a_process_that_computes_lives(clock):
    """Also one that gets a small share of a busy machine."""
    life = StartUpLife()
    clock.update(wall=1.0, cpu=0.03)
    assert 1 == life.look()


@pytest.mark.parametrize(
    "name",
    [
        "models/m-0123456789ab/.fetch-x/pip-1/m.whl",
        "models/m-0123456789ab/.partial-m.gguf",
        "huggingface/models--o--n/blobs/0123.incomplete",
        "received/.partial-00/m.gguf",
    ],
)
def test_a_model_that_grows_is_life_however_slowly(clock, cache, name):
    """A network of some bytes a second takes no CPU time; another process may be fetching."""
    life = StartUpLife()
    file = cache / name
    file.parent.mkdir(parents=True)
    for second, size in enumerate((8192, 8192, 16384), start=1):
        file.write_bytes(b"x" * size)
        clock.update(wall=second)
        assert (1, 1, 2)[second - 1] == life.look()


HOLDER = """
import sys, time
from pathlib import Path
from worker.file_lock import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    while True:
        time.process_time()
"""
WAITER = """
import sys, threading, time
from pathlib import Path
from worker.file_lock import awaited_holders, file_lock
from worker.start_up_life import StartUpLife

def wait():
    with file_lock(Path(sys.argv[1])):
        pass

threading.Thread(target=wait, daemon=True).start()
while not awaited_holders():
    time.sleep(0.01)
life = StartUpLife()
time.sleep(1.0)
print(awaited_holders(), life.look(), flush=True)
"""


def _start(code, lock):
    command = [sys.executable, "-c", code, str(lock)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_who_waits_for_a_process_that_computes_lives(cache):
    """The lock's holder compiles or packs for all of them."""
    holder = _start(HOLDER, cache / "lock")
    try:
        assert "held\n" == holder.stdout.readline()
        waiter = _start(WAITER, cache / "lock")
        assert f"{{{holder.pid}}} 1\n" == waiter.communicate()[0]
    finally:
        holder.kill()
        holder.communicate()

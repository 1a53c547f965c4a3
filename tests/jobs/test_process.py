"""How the process of a command ends."""

import subprocess
import sys

import pytest

from .conftest import ROOT

START = """
import atexit, os, signal, sys
from jobs.failure import one_line_failures
from jobs.process import run_process
"""


def run(program: str) -> subprocess.CompletedProcess:
    """Run a Python program that has the imports of ``START``."""
    command = [sys.executable, "-c", START + program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("end", "code"), [("sys.exit(75)", 75), ("sys.exit()", 0), ("None", 0)])
def test_the_exit_code_is_that_of_the_command(end, code):
    """Whatever else the interpreter's end would do, and what was printed is there."""
    done = run(f"""
atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
print("out"), print("err", file=sys.stderr)
run_process(lambda: {end})
""")
    assert (code, "out\n", "err\n") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_command_with_75(name):
    """In one line, and further signals while it ends change nothing."""
    done = run(f"""
def command():
    with one_line_failures():
        try:
            signal.raise_signal(signal.{name})
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
run_process(command)
""")
    assert (75, f"tokenmill: stopped by {name}\n") == (done.returncode, done.stderr)


def test_output_that_cannot_be_written_is_told():
    """The last flush may find the disk full."""
    done = run("""
sys.stdout = open("/dev/full", "w")
run_process(lambda: print("out"))
""")
    assert 120 == done.returncode
    assert "No space left" in done.stderr


def test_a_fault_outside_of_any_verb_shows_its_traceback():
    """Only an exit leaves by the short way."""
    done = run("run_process(lambda: 1 / 0)")
    assert 1 == done.returncode
    assert "ZeroDivisionError" in done.stderr

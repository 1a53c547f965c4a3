"""Marks on files in use."""

import mmap
import subprocess
import sys
from pathlib import Path

from worker.file_in_use import hold_exclusive, hold_shared, is_in_use

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from worker.file_in_use import hold_shared
file = open(sys.argv[1], "rb")
hold_shared(file)
print("held", flush=True)
time.sleep(600)
"""


def test_a_file_may_be_in_use_by_many_or_taken_by_one(tmp_path):
    """Two users keep a third from taking it; the last one to leave sets it free."""
    path = tmp_path / "f"
    path.touch()
    with path.open("rb") as taker:
        with path.open("rb") as first, path.open("rb") as second:
            hold_shared(first)
            hold_shared(second)
            first.close()
            assert not hold_exclusive(taker)
        assert hold_exclusive(taker)
        assert is_in_use(path)
    assert not is_in_use(path)


def test_a_map_keeps_the_mark_of_its_file(tmp_path):
    """The file itself may be closed."""
    path = tmp_path / "f"
    path.write_bytes(b"content")
    with path.open("rb") as file:
        hold_shared(file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert is_in_use(path)
    mapped.close()
    assert not is_in_use(path)


def test_a_killed_process_leaves_no_mark(tmp_path):
    """The mark of another process is seen, and goes with it."""
    path = tmp_path / "f"
    path.touch()
    command = [sys.executable, "-c", HOLD, str(path)]
    holder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert "held\n" == holder.stdout.readline()
    assert is_in_use(path)
    holder.kill()
    holder.communicate()
    assert not is_in_use(path)

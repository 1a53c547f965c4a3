"""The lock between processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from worker.file_lock import file_lock

ROOT = Path(__file__).parents[2]
HOLD = """
import sys, time
from pathlib import Path
from worker.file_lock import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_only_one_holds_the_lock(tmp_path):
    """A second taker gets in after the first has left."""
    order = []

    def second():
        with file_lock(tmp_path / "new" / "lock"):
            order.append("second")

    with file_lock(tmp_path / "new" / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=0.2)
        order.append("first")
    thread.join()
    assert ["first", "second"] == order


def test_a_killed_holder_leaves_no_lock(tmp_path):
    """The lock file stays behind and blocks nobody."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    holder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert "held\n" == holder.stdout.readline()
    holder.kill()
    holder.communicate()
    assert (tmp_path / "lock").exists()
    with file_lock(tmp_path / "lock"):
        pass


def test_a_long_wait_is_told(tmp_path, monkeypatch, caplog):
    """After a while a waiting process names the one it waits for, once; a short wait is quiet."""
    path = tmp_path / "lock"
    for limit, told in ((60.0, 0), (0.01, 1), (0.01, 0)):
        monkeypatch.setattr("worker.file_lock.NOTICE_AFTER_S", limit)
        caplog.clear()
        waiter = threading.Thread(target=_take, args=(path,))
        with file_lock(path):
            waiter.start()
            waiter.join(timeout=0.3)
        waiter.join()
        words = f"waiting for process {os.getpid()}, which holds {path} to fetch a model"
        assert [words] * told == [record.message for record in caplog.records]


def _take(path):
    with file_lock(path, "to fetch a model"):
        pass

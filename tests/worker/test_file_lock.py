"""The lock between processes."""

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

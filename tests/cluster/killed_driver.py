"""A driver that kills itself at a file operation of its own choice."""

import gc
import os
import signal
import sys

from cluster import commit
from cluster.commit import HashingFile
from tests.cluster.fake_job import run_fake_job

MOST_OPERATIONS = 1000
"""More than any job of the tests has."""


def killed_at(operation, source, output, **fields):
    """Run the job in a child that kills itself before its n-th change of a file in the output.

    Returns whether it was killed.
    """
    pid = os.fork()
    if pid == 0:
        gc.disable()  # it would touch, and so copy, all memory of the parent
        left = [operation]

        def count(*_):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event, arguments):
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            names = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
            if (writes or event in names) and str(output) in str(arguments[0]):
                count()

        def half_a_write(self, data, write=HashingFile.write):
            half = memoryview(data).cast("B")
            write(self, half[: len(half) // 2])
            self._file.flush()
            if self.size == len(half) // 2:  # once a file
                count()
            write(self, half[len(half) // 2 :])
            return len(half)

        HashingFile.write, commit.sync = half_a_write, count
        sys.addaudithook(hook)
        try:
            run_fake_job(source, output, **fields)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)

"""Holding BLAS to one thread, before and after NumPy is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPORT = """
import numpy, threadpoolctl
print([i['num_threads'] for i in threadpoolctl.threadpool_info() if i['user_api'] == 'blas'])
"""
BEFORE = f"import worker\n{REPORT}"
AFTER = f"import numpy\nimport worker.blas_threads as b\nb.hold_blas_to_one_thread()\n{REPORT}"


def _output(code):
    """What a new process prints, without a setting of the user's."""
    unset = ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS")
    environment = {k: v for k, v in os.environ.items() if k not in unset}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("code", [BEFORE, AFTER], ids=["before", "after"])
@pytest.mark.skipif(sys.platform == "darwin", reason="Accelerate cannot be asked for its threads")
def test_the_library_reports_one_thread(code):
    """Whichever is imported first."""
    assert "[1]" == _output(code)


@pytest.mark.skipif(sys.platform == "darwin", reason="Accelerate cannot be asked for its threads")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")
def test_the_library_would_use_more_threads_by_itself():
    """Or the test above could not fail."""
    assert "[1]" != _output(REPORT)


def test_importing_the_package_loads_no_numpy_and_speaks_to_accelerate():
    """The variable that Accelerate reads is set before NumPy can load it."""
    code = "import os, sys, worker; print('numpy' in sys.modules, os.environ[{!r}])"
    assert "False 1" == _output(code.format("VECLIB_MAXIMUM_THREADS"))

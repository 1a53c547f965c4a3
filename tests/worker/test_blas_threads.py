"""Holding BLAS to one thread, before and after NumPy is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT = "print([i['num_threads'] for i in threadpool_info() if i['user_api'] == 'blas'])"
BEFORE = "from worker.blas_threads import hold_blas_to_one_thread as hold\nhold()\nimport numpy\n"
AFTER = "import numpy\nfrom worker.blas_threads import hold_blas_to_one_thread as hold\nhold()\n"


@pytest.mark.parametrize("order", [BEFORE, AFTER], ids=["before", "after"])
@pytest.mark.skipif(sys.platform == "darwin", reason="Accelerate cannot be asked for its threads")
def test_the_library_reports_one_thread(order):
    """Whichever is imported first."""
    code = f"{order}from threadpoolctl import threadpool_info\n{COUNT}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "[1]" == done.stdout.strip()


def test_the_module_does_not_load_numpy():
    """Entry points call it before NumPy is there: it must not bring NumPy in."""
    code = (
        "import sys, worker.blas_threads as threads; threads.hold_blas_to_one_thread(); "
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "False" == done.stdout.strip()

"""Holding the BLAS library behind NumPy to one thread.

Kept apart from blas.py because it must be callable before NumPy is loaded: Accelerate reads its
environment variable when it starts.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache

_ACCELERATE = "/System/Library/Frameworks/Accelerate.framework/Accelerate"
_SINGLE_THREADED = 1  # BLAS_THREADING_SINGLE_THREADED in Accelerate's thread_api.h


def hold_blas_to_one_thread() -> None:
    """Keep BLAS calls of this process (on macOS: also of this thread) to one thread.

    Threads inside BLAS would share the sum of one output element, so results would depend on
    their number; and they would compete with our own team. Entry points call this before anything
    imports NumPy; every thread of the team calls it when it starts, because macOS 15 and
    later keep the setting per thread.
    """
    if sys.platform == "darwin":
        os.environ["VECLIB_MAXIMUM_THREADS"] = "1"
        set_threading = _accelerate_set_threading()
        if set_threading is not None:
            set_threading(_SINGLE_THREADED)
    if "numpy" in sys.modules:
        _limit_loaded_libraries()
    else:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"


@cache
def _limit_loaded_libraries() -> object:
    from threadpoolctl import threadpool_limits

    # The returned object restores the old limit when asked to; nobody asks.
    return threadpool_limits(1, user_api="blas")


@cache
def _accelerate_set_threading() -> Callable[[int], int] | None:
    """BLASSetThreading of Accelerate, None before macOS 15."""
    try:
        function: Callable[[int], int] = ctypes.CDLL(_ACCELERATE).BLASSetThreading
    except (OSError, AttributeError):
        return None
    return function

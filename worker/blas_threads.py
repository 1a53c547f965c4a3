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


def ask_for_one_thread() -> None:
    """Ask BLAS libraries that are not loaded yet to use one thread; also those of child processes.

    Called when this package is imported. Accelerate before macOS 15 knows no other way.
    """
    os.environ["VECLIB_MAXIMUM_THREADS"] = "1"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def hold_blas_to_one_thread() -> None:
    """Keep BLAS calls of this process (on macOS: of this thread) to one thread.

    Threads inside BLAS would share the sum of one output element, so results would depend on
    their number; and they would compete with our own team. Every thread of the team calls this when
    it starts, because macOS 15 and later keep the setting per thread.
    """
    if sys.platform == "darwin":
        set_threading = _accelerate_set_threading()
        if set_threading is not None:
            set_threading(_SINGLE_THREADED)
    _limit_loaded_libraries()


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

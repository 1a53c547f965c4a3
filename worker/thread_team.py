"""A persistent team of threads that works through numbered items together.

A decoder step has hundreds of parallel regions of some hundred microseconds each, too short for a
thread pool that wakes threads through the operating system. Here a thread that has nothing to do
first watches a word in memory for a while (in compiled code, without the GIL) and parks only when
no region follows soon.
"""

import itertools
import threading
from collections.abc import Callable
from types import TracebackType

import numpy as np

from .blas_threads import hold_blas_to_one_thread
from .kernels.spin import wait_for_change

Work = Callable[[int], None]
Job = Callable[[int], None]

# About 100 us of pauses bridges the Python code between two regions; the yields after that
# last at most about a millisecond on an idle core.
_PAUSES = 3000
_YIELDS = 1000
_WORD = 16  # int64 words between two threads' counters: no two share a cache line


class ThreadTeam:
    """`threads` threads, the caller's own included, that run work items handed out by a counter.

    Items must write to different places and release the GIL for most of their time. Which thread
    runs an item must not matter: threads share the items, never the sum of one output element.

    Attributes:
        threads: threads in the team, at least 1. A team of one runs everything inline.
    """

    threads: int

    def __init__(self, threads: int) -> None:
        assert threads >= 1, threads
        self.threads = threads
        # Word 0 counts regions begun; word i * _WORD the last region that helper i has finished.
        self._words = np.zeros(threads * _WORD, np.int64)
        self._region = 0
        self._job: Job | None = None
        self._error: BaseException | None = None
        self._parked = 0
        self._closed = False
        self._wake = threading.Condition()
        hold_blas_to_one_thread()
        self._helpers = [
            threading.Thread(target=self._help, args=(i,), name=f"team-{i}", daemon=True)
            for i in range(1, threads)
        ]
        for helper in self._helpers:
            helper.start()

    def run(self, work: Work, items: int) -> None:
        """Call work(0) to work(items - 1), each once, and return when all are done.

        Raises:
            BaseException: the first exception of an item; items not begun by then are dropped.
        """
        if self.threads == 1 or items <= 1:
            self._assert_free()
            for item in range(items):
                work(item)
            return
        counter = itertools.count()

        def take_items(thread: int) -> None:
            # next() on a count is one step under the GIL: no two threads get the same number.
            for item in counter:
                if item >= items or self._error is not None:
                    return
                work(item)

        self.together(take_items)

    def together(self, job: Job) -> None:
        """Call job(thread) once on every thread, 0 is the caller's, and return when all are done.

        Raises:
            BaseException: the first exception of a call.
        """
        self._assert_free()
        self._job = job
        self._begin_region()
        self._do_job(0)
        self._wait_for_helpers()
        self._job = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _assert_free(self) -> None:
        assert self._job is None, "ThreadTeam.run was called from within a work item"
        assert not self._closed, "ThreadTeam.run was called after close()"

    def close(self) -> None:
        """End the helper threads. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._begin_region()
        for helper in self._helpers:
            helper.join()

    def __enter__(self) -> "ThreadTeam":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _begin_region(self) -> None:
        # The GIL orders these writes before the helpers' reads: a helper holds it when it reads.
        self._region += 1
        self._words[0] = self._region
        if self._parked:
            with self._wake:
                self._wake.notify_all()

    def _do_job(self, thread: int) -> None:
        """This thread's call of the job; an exception is kept for the caller of the team."""
        assert self._job is not None
        try:
            self._job(thread)
        except BaseException as error:
            if self._error is None:
                self._error = error

    def _wait_for_helpers(self) -> None:
        for helper in range(1, self.threads):
            word = helper * _WORD
            while self._words[word] != self._region:
                wait_for_change(self._words, word, self._region - 1, _PAUSES, _YIELDS)

    def _help(self, helper: int) -> None:
        """Life of a helper thread: wait for a region, take items, say so, again."""
        hold_blas_to_one_thread()
        seen = 0
        while True:
            if not wait_for_change(self._words, 0, seen, _PAUSES, _YIELDS):
                self._park(seen)
            seen = self._region
            if self._closed:
                return
            self._do_job(helper)
            self._words[helper * _WORD] = seen

    def _park(self, seen: int) -> None:
        """Sleep until a region other than `seen` has begun."""
        with self._wake:
            self._parked += 1
            while self._region == seen:
                self._wake.wait()
            self._parked -= 1

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
from .kernels.native import address_of
from .kernels.spin import wait_for_change
from .kernels.team import (
    OPERATIONS,
    REGION,
    TIMES,
    WORDS_A_THREAD,
    announce,
    follow,
    lead,
    team_words,
)

Work = Callable[[int], None]
Job = Callable[[int], None]

# About 100 us of pauses bridges the Python code between two regions; the yields after that
# last at most about a millisecond on an idle core.
_PAUSES = 3000
_YIELDS = 1000
_WORDS_A_LINE = 8


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
        memory = np.zeros(team_words(threads) + _WORDS_A_LINE, np.int64)
        skew = -address_of(memory) // 8 % _WORDS_A_LINE
        self._words = memory[skew : skew + team_words(threads)]  # see `kernels.team`
        self._address = address_of(self._words)
        self._job: Job | None = None  # of the last region, while helpers may still look at it
        self._busy = False
        self._summoned = False
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
        self._wait_for_helpers()
        self._job, self._error = job, None
        self._words[OPERATIONS] = 0
        try:
            self._busy = True
            announce(self._address)
            self._wake_parked()
            self._do_job(0)
            self._wait_for_helpers()
        finally:
            self._busy = False
        # Not where a KeyboardInterrupt ended the wait: helpers may be on their way to the job.
        self._job = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def replay(self, program: tuple[int, int, int, int, int]) -> None:
        """Take all threads through a compiled program; the work is done when this returns.

        A KeyboardInterrupt comes before the program or after it: the caller begins the region and
        takes its own part in a single compiled call, with the helpers awake already.

        Args:
            program: of the arguments of `run_operations`, those that are the program's own.
        """
        self._assert_free()
        self._wait_for_helpers()
        self._words[OPERATIONS : TIMES + 1] = program
        try:
            self._summoned = True
            self._wake_parked()
            lead(self._address, self.threads)
        finally:
            self._summoned = False

    def _assert_free(self) -> None:
        assert not self._busy, "ThreadTeam.run was called from within a work item"
        assert not self._closed, "ThreadTeam.run was called after close()"

    def close(self) -> None:
        """End the helper threads. A second call does nothing."""
        if self._closed:
            return
        self._wait_for_helpers()
        self._closed = True
        self._words[OPERATIONS] = 0
        announce(self._address)
        self._wake_parked()
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

    def _wake_parked(self) -> None:
        """Wake helpers that sleep; the region has begun, or they are summoned to wait for it."""
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
        """Wait until all helpers are done with the last region."""
        region = self._words[REGION]
        for helper in range(1, self.threads):
            own = helper * WORDS_A_THREAD
            while (done := self._words[own]) != region:
                self._wake_parked()  # a KeyboardInterrupt may have come before they were woken
                wait_for_change(self._address, own, done, _PAUSES, _YIELDS)

    def _help(self, helper: int) -> None:
        """Life of a helper thread: wait for a region, do its part, say so, again."""
        hold_blas_to_one_thread()
        own = helper * WORDS_A_THREAD
        while True:
            if not follow(self._address, helper, self.threads, _PAUSES, _YIELDS):
                self._park(own)
                continue
            if self._closed:
                return
            self._do_job(helper)
            self._words[own] = self._words[REGION]

    def _park(self, own: int) -> None:
        """Sleep until a region that the helper with that word has not done begins, or soon will."""
        with self._wake:
            self._parked += 1
            while self._words[REGION] == self._words[own] and not self._summoned:
                self._wake.wait()
            self._parked -= 1

"""The thread team: every item once, exceptions to the caller, an orderly end."""

import signal
import threading
import time

import numpy as np
import pytest

from worker.kernels.native import address_of, int64s, task, word
from worker.kernels.spin import wait_for_change
from worker.program import Program
from worker.stages import Stages
from worker.thread_team import ThreadTeam


@task
def count_one(header, arguments, item, thread):
    """Add 1 to element `item` of an array of 8."""
    int64s(word(arguments, 0), 8)[item] += 1


@pytest.fixture(params=[1, 2, 5])
def team(request):
    """Teams of one, of two, and of more threads than cores."""
    with ThreadTeam(request.param) as team:
        yield team


@pytest.mark.parametrize("items", [0, 1, 2, 7, 100])
def test_each_item_runs_once(team, items):
    """Over many regions in a row, with more and with fewer items than threads."""
    for _ in range(20):
        seen = []
        team.run(seen.append, items)
        assert list(range(items)) == sorted(seen)


def test_results_are_complete_when_run_returns(team):
    """No item is still being written when the caller goes on."""
    out = np.zeros(64, np.int64)
    for region in range(1, 200):

        def work(item, region=region):
            out[item] = region

        team.run(work, 64)
        assert (out == region).all()


def test_items_run_on_several_threads_at_once():
    """Two items that wait for each other can only end together."""
    meeting = threading.Barrier(2, timeout=30)
    with ThreadTeam(2) as team:
        team.run(lambda _item: meeting.wait(), 2)


def test_a_team_of_one_runs_inline_in_order():
    """No thread is started, and items come in order on the caller's thread."""
    before = threading.active_count()
    with ThreadTeam(1) as team:
        assert before == threading.active_count()
        seen = []
        team.run(lambda item: seen.append((item, threading.get_ident())), 3)
    assert [(i, threading.get_ident()) for i in range(3)] == seen


def test_an_exception_reaches_the_caller_and_the_team_goes_on(team):
    """The first exception is raised; the next region runs as if nothing had been."""

    def fail(item):
        if item == 3:
            raise ValueError("item 3")

    for _ in range(5):
        with pytest.raises(ValueError, match="item 3"):
            team.run(fail, 50)
        seen = []
        team.run(seen.append, 10)
        assert list(range(10)) == sorted(seen)


def test_parked_threads_wake_up():
    """After a pause longer than the spin, a region still runs on all threads."""
    with ThreadTeam(2) as team:
        meeting = threading.Barrier(2, timeout=30)
        for _ in range(3):
            deadline = time.monotonic() + 30
            while team._parked < 1:
                assert time.monotonic() < deadline, "the helper thread never parked"
                time.sleep(0.01)
            team.run(lambda _item: meeting.wait(), 2)


def test_programs_and_python_jobs_follow_each_other(team):
    """Helpers come back to Python for a job, and stay in compiled code between programs."""
    values = np.zeros(8, np.int64)
    program = Program(team, Stages(), 1)
    program.add_task("norm", count_one, [address_of(values)], items=8)
    program.finish()
    for turn in range(1, 30):
        for _ in range(turn % 3):
            program.run()
        seen = []
        team.run(seen.append, 5)
        assert sorted(seen) == list(range(5))
    assert (values == sum(turn % 3 for turn in range(1, 30))).all()


def test_a_program_wakes_parked_threads():
    """After a pause longer than the spin, helpers still take part."""
    values = np.zeros(8, np.int64)
    with ThreadTeam(3) as team:
        program = Program(team, Stages(), 1)
        program.add_task("norm", count_one, [address_of(values)], items=8)
        program.finish()
        for turn in range(1, 4):
            deadline = time.monotonic() + 30
            while team._parked < 2:
                assert time.monotonic() < deadline, "the helper threads never parked"
                time.sleep(0.01)
            program.run()
            assert (values == turn).all()


class Interrupts:
    """Signals come to this thread all the time; the next one after `armed` raises, like Ctrl-C."""

    def __init__(self):
        self.armed = False
        self._over = threading.Event()
        self._sender = threading.Thread(target=self._send, args=(threading.get_ident(),))

    def __enter__(self):
        self._before = signal.signal(signal.SIGUSR1, self._interrupt)
        self._sender.start()
        return self

    def __exit__(self, *_):
        self.armed = False
        self._over.set()
        self._sender.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _send(self, thread):
        turn = 0
        while not self._over.wait(1e-4 * (turn % 7)):
            signal.pthread_kill(thread, signal.SIGUSR1)
            turn += 1

    def _interrupt(self, _signal, _frame):
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


def test_interrupts_strand_no_helper():
    """Wherever they come: a program runs wholly or not at all, and the team goes on."""
    values, interrupted = np.zeros(8, np.int64), 0
    with ThreadTeam(3) as team, Interrupts() as interrupts:
        program = Program(team, Stages(), 1)
        program.add_task("norm", count_one, [address_of(values)], items=8)
        program.finish()
        program.run()  # compiles what it needs, as the next line does
        team.run(lambda item: None, 5)
        while interrupted < 500:
            try:
                interrupts.armed = True
                while True:
                    program.run()
                    team.run(lambda item: time.sleep(1e-5 * item), 5)
            except KeyboardInterrupt:
                interrupted += 1
            assert len(set(values.tolist())) == 1
            if interrupted % 100 == 0:
                time.sleep(0.05)  # long enough for helpers to park
        seen = []
        team.run(seen.append, 20)
        assert sorted(seen) == list(range(20))


@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("call", ["program", "job"])
def test_an_interrupt_before_helpers_are_woken_strands_none(monkeypatch, call, parked):
    """The region has not begun, or is ended before the next one."""
    values, seen = np.zeros(8, np.int64), []
    with ThreadTeam(3) as team:
        program = Program(team, Stages(), 1)
        program.add_task("norm", count_one, [address_of(values)], items=8)
        program.finish()
        program.run()
        run = program.run if call == "program" else lambda: team.run(seen.append, 20)
        while parked and team._parked < 2:
            time.sleep(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(team, "_wake_parked", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                run()
        program.run()  # waits for what is left of the job
        seen.clear()
        run()
        assert values.tolist() == [3 if call == "program" else 2] * 8
        assert call == "program" or sorted(seen) == list(range(20))


def _interrupt():
    raise KeyboardInterrupt


def test_close_ends_the_threads_and_may_be_repeated():
    """No thread outlives its team."""
    before = threading.active_count()
    team = ThreadTeam(4)
    team.run(lambda item: None, 8)
    team.close()
    team.close()
    assert before == threading.active_count()


def test_a_nested_region_is_refused():
    """An item that calls run() would wait for itself."""
    with ThreadTeam(2) as team, pytest.raises(AssertionError, match="within a work item"):
        team.run(lambda _item: team.run(lambda _inner: None, 4), 4)


def test_a_wait_is_bounded():
    """A word that never changes gives False, a changed one True at once."""
    words = np.zeros(4, np.int64)
    assert not wait_for_change(address_of(words), 1, 0, 10, 10)
    words[1] = 5
    assert wait_for_change(address_of(words), 1, 0, 10, 10)

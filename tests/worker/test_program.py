"""Programs: recorded once, replayed by all threads."""

import threading

import numpy as np
import pytest

import worker.thread_team
from worker.kernels.memory import count_up, load_acquire
from worker.kernels.native import address_of, int64s, task, word
from worker.kernels.spin import pause
from worker.program import Program
from worker.stages import Stages
from worker.thread_team import ThreadTeam

SIZE = 64


@task
def add_item(header, arguments, item, thread):
    """Add item + 1 to element `item` of an array, and note the thread."""
    values = int64s(word(arguments, 0), SIZE)
    values[item] += item + 1
    int64s(word(arguments, 1), SIZE)[item] = thread


@task
def take_sum(header, arguments, item, thread):
    """Put the sum of the array into element 0 of another."""
    total = 0
    for value in int64s(word(arguments, 0), SIZE):
        total += value
    int64s(word(arguments, 1), 1)[0] = total


@task
def meet(header, arguments, item, thread):
    """Note the thread of an item, then wait until as many items have begun as there are threads."""
    int64s(word(arguments, 0), SIZE)[item] = thread
    count_up(word(arguments, 1), 0)
    while load_acquire(word(arguments, 1), 0) < word(arguments, 2):
        pause()


@pytest.fixture(params=[1, 2, 5])
def team(request):
    """Teams of one thread, of as many as cores, and of more."""
    with ThreadTeam(request.param) as made:
        yield made


def arrays():
    """An array of values, one of thread numbers, one for a sum."""
    return np.zeros(SIZE, np.int64), np.full(SIZE, -1, np.int64), np.zeros(1, np.int64)


def test_every_item_runs_once_in_every_replay(team):
    """After n replays each element has been added to n times."""
    values, threads, _ = arrays()
    program = Program(team, Stages(), 4)
    words = [address_of(values), address_of(threads)]
    program.add_task("norm", add_item, words, items=SIZE)
    program.add_task("norm", add_item, words, items_word=2)
    program.finish()
    for replay in range(1, 50):
        program.header[2] = replay % SIZE
        before = values.copy()
        program.run()
        expected = np.arange(1, SIZE + 1) * (1 + (np.arange(SIZE) < replay % SIZE))
        assert np.array_equal(expected, values - before)
    assert set(threads.tolist()) <= set(range(team.threads))


def test_threads_begin_at_their_own_shares_of_fixed_items(team):
    """Each walks through neighbouring items: here all hold their first one at the same time."""
    threads = team.threads
    firsts = [SIZE * thread // threads for thread in range(threads)]
    assert list(range(threads)) == meeting(team, items=SIZE)[firsts].tolist()


def test_the_items_of_a_batch_are_begun_in_their_order(team):
    """As many as there are threads are the first ones, whoever gets them."""
    found = meeting(team, items_word=1)[: team.threads].tolist()
    assert list(range(team.threads)) == sorted(found)


def meeting(team, **items):
    """The threads of all items, of which no thread gets a second one before each has its first."""
    begun, noted = np.zeros(1, np.int64), np.full(SIZE, -1, np.int64)
    program = Program(team, Stages(), 4)
    program.header[1] = SIZE
    program.add_task("norm", meet, [address_of(noted), address_of(begun), team.threads], **items)
    program.finish()
    program.run()
    assert SIZE == begun[0]
    return noted


def test_an_operation_sees_all_that_the_one_before_wrote(team):
    """The barrier between operations: a sum taken right after the items is never short."""
    values, threads, total = arrays()
    program = Program(team, Stages(), 4)
    for _ in range(20):
        program.add_task("norm", add_item, [address_of(values), address_of(threads)], items=SIZE)
        program.add_task("norm", take_sum, [address_of(values), address_of(total)], items=1)
    program.finish()
    for _ in range(20):
        program.run()
        assert values.sum() == total[0]


def test_calls_stand_between_tasks_in_order(team):
    """A Python call runs after the tasks recorded before it, and may use the team."""
    values, threads, _ = arrays()
    seen = []
    program = Program(team, Stages(), 4)
    words = [address_of(values), address_of(threads)]
    program.add_call("embedding", lambda: team.run(lambda item: None, 8))
    program.add_task("norm", add_item, words, items=SIZE)
    program.add_call("norm", lambda: seen.append(values.sum()))
    program.add_task("norm", add_item, words, items=SIZE)
    program.finish()
    program.run()
    program.run()
    once = SIZE * (SIZE + 1) // 2
    assert [once, 3 * once] == seen


def test_no_items_and_no_operations_are_fine(team):
    """An operation may have nothing to do in a step, and a program nothing at all."""
    values, threads, _ = arrays()
    program = Program(team, Stages(), 4)
    program.add_task("norm", add_item, [address_of(values), address_of(threads)], items_word=0)
    program.finish()
    program.run()
    assert not values.any()
    empty = Program(team, Stages(), 1)
    empty.finish()
    empty.run()


def test_an_error_of_a_call_leaves_the_program_usable(team):
    """A call that fails ends the run; the next run is whole."""
    fails = [True]
    values, threads, _ = arrays()

    def call():
        if fails.pop():
            raise ValueError("this time")
        fails.append(False)

    program = Program(team, Stages(), 4)
    program.add_call("norm", call)
    program.add_task("norm", add_item, [address_of(values), address_of(threads)], items=SIZE)
    program.finish()
    with pytest.raises(ValueError, match="this time"):
        program.run()
    fails.append(False)
    program.run()
    assert np.array_equal(np.arange(1, SIZE + 1), values)


def test_programs_may_be_dropped_as_soon_as_they_have_run(team):
    """A helper may still stand at the last barrier: what it looks at there is not the program's."""
    for turn in range(300):
        values, threads, _ = arrays()
        program = Program(team, Stages(), 4)
        words = [address_of(values), address_of(threads)]
        program.add_task("norm", add_item, words, items=SIZE)
        program.finish()
        program.run()
        del program
        assert np.array_equal(np.arange(1, SIZE + 1), values), turn


@pytest.mark.parametrize("ran", [False, True])
def test_an_interrupt_before_or_after_the_program_strands_no_thread(monkeypatch, team, ran):
    """Between the two it cannot come: helpers and caller are in compiled code together."""
    values, threads, _ = arrays()
    program = Program(team, Stages(), 4)
    program.add_task("norm", add_item, [address_of(values), address_of(threads)], items=SIZE)
    program.finish()
    real = worker.thread_team.lead

    def interrupted(*arguments):
        if ran:
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(worker.thread_team, "lead", interrupted)
        with pytest.raises(KeyboardInterrupt):
            program.run()
    assert np.array_equal(ran * np.arange(1, SIZE + 1), values)
    program.run()
    assert np.array_equal((1 + ran) * np.arange(1, SIZE + 1), values)


def test_times_are_recorded_by_stage_while_recording(team):
    """Each operation counts as a call of its stage; without recording nothing is kept."""
    values, threads, total = arrays()
    stages = Stages()
    program = Program(team, stages, 4)
    words = [address_of(values), address_of(threads)]
    program.add_task("norm", add_item, words, items=SIZE)
    program.add_task("norm", add_item, words, items=SIZE)
    program.add_task("attention", take_sum, [address_of(values), address_of(total)], items=1)
    program.finish()
    program.run()
    stages.start()
    program.run()
    program.run()
    records = {record.name: record for record in stages.stop()}
    assert (4, 2) == (records["norm"].calls, records["attention"].calls)
    assert all(0 < record.seconds < 60 for record in records.values())


def test_a_busy_machine_slows_a_program_down_without_losing_items():
    """Threads that lose their core sleep at the barrier and come back."""
    stop = threading.Event()

    def burn():
        while not stop.is_set():
            np.dot(np.ones((200, 200)), np.ones((200, 200)))

    burners = [threading.Thread(target=burn) for _ in range(4)]
    for burner in burners:
        burner.start()
    try:
        with ThreadTeam(4) as team:
            test_an_operation_sees_all_that_the_one_before_wrote(team)
    finally:
        stop.set()
        for burner in burners:
            burner.join()

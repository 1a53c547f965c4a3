import itertools

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.dispatcher import Dispatcher, Outcome
from cluster.plan import Shard

MAX_ATTEMPTS = 3


def shard(index, rows=4, size=10):
    """A shard that is told apart by its first row; its payload has some size at least."""
    schema = pa.schema([("row", pa.int64())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(pa.table({"row": range(index * 100, index * 100 + rows)}, schema))
    payload = bytes(sink.getvalue())
    return Shard(index * 100, rows, payload + b"x" * max(0, size - len(payload)))


def rows_of(shard):
    """The row ids in a shard's payload."""
    return pa.ipc.open_stream(shard.payload).read_all()["row"].to_pylist()


def dispatcher(**bounds):
    """A dispatcher with small bounds."""
    defaults = {
        "min_shards": 2,
        "target_rows": 10,
        "max_bytes": 10_000,
        "max_attempts": MAX_ATTEMPTS,
    }
    return Dispatcher(**(defaults | bounds))


def held(assignments):
    """(worker, first row) of each."""
    return [(a.worker, a.shard.first_row) for a in assignments]


def test_every_worker_gets_two_shards_and_more_up_to_the_row_target():
    """Shards go to the worker with the fewest rows; two is the least, target_rows the most."""
    two = dispatcher()
    two.add_worker("a")
    two.add_worker("b")
    for index in range(9):
        two.add_shard(shard(index))
    expected = [("a", 0), ("b", 100), ("a", 200), ("b", 300), ("a", 400), ("b", 500)]
    assert expected == held(two.assign())
    assert not two.wants_shard


def test_bytes_in_flight_bound_what_a_worker_gets_beyond_two():
    """Large shards: two a worker, whatever their size, and no third."""
    one = dispatcher(target_rows=1000)
    one.add_worker("a")
    for index in range(5):
        one.add_shard(shard(index, size=6000))
    assert [("a", 0), ("a", 100)] == held(one.assign())


def test_shards_of_a_lost_worker_go_first_and_its_late_results_are_refused():
    """Lost shards come first, in row order; what their worker says later is void."""
    one = dispatcher()
    one.add_worker("a")
    for index in range(4):
        one.add_shard(shard(index))
    list(one.assign())
    one.lose_worker("a")
    one.add_worker("b")
    assert [("b", 0), ("b", 100), ("b", 200)] == held(one.assign())
    assert Outcome.REFUSE is one.done("a", 0)
    assert Outcome.COMMIT is one.done("b", 0)
    assert Outcome.REFUSE is one.done("b", 0)


def test_a_shard_that_was_lost_twice_is_tried_alone_and_cut_in_halves():
    """A worker is emptied for it; others go on meanwhile; halves hold the right rows."""
    two = dispatcher()
    two.add_worker("a")
    for index in range(3):
        two.add_shard(shard(index))
    list(two.assign())
    two.lose_worker("a")
    two.add_worker("b")
    list(two.assign())
    two.lose_worker("b")
    two.add_worker("c")
    two.add_worker("d")
    (first,) = two.assign()  # nothing else: all three are suspects
    assert ("c", 0, 3) == (first.worker, first.shard.first_row, first.attempt)
    two.add_shard(shard(7))
    assert [("d", 700)] == held(two.assign())
    loss = two.lose_worker("c")
    assert [range(4)] == [again.rows for again in loss.again]
    assert [] == held(two.assign())  # until something else is done
    two.done("d", 700)
    two.no_more_shards()
    for rows in ([100, 101, 102, 103], [200, 201, 202, 203], [0, 1], [2, 3]):
        (alone,) = two.assign()
        assert ("d", rows) == (alone.worker, rows_of(alone.shard))
        assert Outcome.COMMIT is two.done("d", rows[0])


def test_a_row_is_given_up_after_max_attempts_alone():
    """Two losses in company, two levels of halves, then three alone; neighbours are done."""
    one, given_up, committed = dispatcher(), [], []
    one.add_shard(shard(1))
    one.no_more_shards()
    for worker in itertools.count():
        one.add_worker(worker)
        while (sent := next(one.assign(), None)) and 102 not in sent.shard.rows:
            one.done(worker, sent.shard.first_row)
            committed += sent.shard.rows
        if sent is None:
            break
        given_up += one.lose_worker(worker).given_up
    assert [range(102, 103)] == [shard.rows for shard in given_up]
    assert [100, 101, 103] == sorted(committed)
    assert 2 + 2 + MAX_ATTEMPTS == worker


def test_at_the_end_idle_workers_get_copies_and_the_first_result_counts():
    """The last shards of the busiest worker first; nobody gets a copy while shards are to come."""
    two = dispatcher()
    two.add_worker("slow")
    two.add_worker("fast")
    for index in range(6):
        two.add_shard(shard(index))
    list(two.assign())
    for index in (1, 3, 5):
        two.done("fast", index * 100)
    assert [] == held(two.assign())
    two.no_more_shards()
    assert [("fast", 400)] == held(two.assign())
    assert Outcome.COMMIT is two.done("fast", 400)
    assert [("fast", 200)] == held(two.assign())
    assert Outcome.COMMIT is two.done("slow", 200)
    assert Outcome.REFUSE is two.done("fast", 200)
    assert Outcome.REFUSE is two.done("slow", 400)


def test_losing_one_of_two_copies_loses_nothing():
    """The other one is still at it."""
    two = dispatcher()
    two.add_worker("a")
    two.add_shard(shard(0))
    two.no_more_shards()
    list(two.assign())
    two.add_worker("b")
    assert [("b", 0)] == held(two.assign())
    assert () == two.lose_worker("a").again
    assert Outcome.COMMIT is two.done("b", 0)


@pytest.mark.parametrize("speeds", [(4, 1), (4, 4, 4, 1), (8, 4, 2, 1), (1, 1)])
def test_slow_and_fast_workers_end_together(speeds):
    """The makespan is within 15 % of the ideal one, rows over the sum of speeds."""
    fleet = Dispatcher(min_shards=2, target_rows=64, max_bytes=1 << 20, max_attempts=3)
    rows, per_shard = 1600 * len(speeds), 16
    waiting = [shard(index, per_shard) for index in range(rows // per_shard)]
    clocks = dict.fromkeys(range(len(speeds)), 0.0)
    queues = {worker: [] for worker in clocks}
    for worker in clocks:
        fleet.add_worker(worker)
    done = set()
    while len(done) < rows // per_shard:
        while True:
            for sent in fleet.assign():
                queues[sent.worker].append(sent.shard.first_row)
            if not fleet.wants_shard:
                break
            if waiting:
                fleet.add_shard(waiting.pop(0))
            else:
                fleet.no_more_shards()
        busy = [worker for worker in clocks if queues[worker]]
        worker = min(busy, key=lambda w: clocks[w] + per_shard / speeds[w])
        now = clocks[worker] = clocks[worker] + per_shard / speeds[worker]
        first = queues[worker].pop(0)
        if fleet.done(worker, first) is Outcome.COMMIT:
            done.add(first)
        for idle in clocks:
            if not queues[idle]:
                clocks[idle] = max(clocks[idle], now)
    assert now <= 1.15 * rows / sum(speeds)


class DispatcherMachine(RuleBasedStateMachine):
    """Any order of events: each shard is committed at most once, and all are in the end."""

    def __init__(self):
        super().__init__()
        self.dispatcher = dispatcher(max_attempts=10_000)
        self.added, self.committed, self.sent, self.rows_sent = [], [], [], {}
        self.ended = False
        self.workers = []

    @rule()
    def join(self):
        """A worker comes."""
        self.workers.append(len(self.workers))
        self.dispatcher.add_worker(self.workers[-1])

    @rule()
    def end(self):
        """The plan is at its end."""
        self.dispatcher.no_more_shards()
        self.ended = True

    @precondition(lambda self: not self.ended)
    @rule(rows=st.integers(1, 12), size=st.integers(0, 20_000))
    def add(self, rows, size):
        """The plan gives a shard."""
        self.added.append(shard(len(self.added), rows, size))
        self.dispatcher.add_shard(self.added[-1])

    @rule()
    def assign(self):
        """Shards are handed out."""
        for sent in self.dispatcher.assign():
            self.sent.append((sent.worker, sent.shard.first_row))
            self.rows_sent[self.sent[-1]] = sent.shard.rows
            assert rows_of(sent.shard) == list(sent.shard.rows)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def answer(self, data):
        """Any answer that was ever asked for arrives, late and doubled ones too."""
        worker, first_row = data.draw(st.sampled_from(self.sent))
        if self.dispatcher.done(worker, first_row) is Outcome.COMMIT:
            self.committed += self.rows_sent[worker, first_row]

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def lose(self, data):
        """Any worker dies, dead ones again."""
        self.dispatcher.lose_worker(data.draw(st.sampled_from(self.workers)))

    @invariant()
    def nothing_is_doubled(self):
        """No shard is committed or held twice."""
        self.dispatcher.check_invariants()
        assert len(set(self.committed)) == len(self.committed)

    def teardown(self):
        """From any state, one good worker finishes everything."""
        for worker in self.workers:
            self.dispatcher.lose_worker(worker)
        self.dispatcher.add_worker("last")
        while assignments := list(self.dispatcher.assign()):
            for sent in assignments:
                assert Outcome.COMMIT is self.dispatcher.done(sent.worker, sent.shard.first_row)
                self.committed += sent.shard.rows
        assert sorted(row for s in self.added for row in s.rows) == sorted(self.committed)


TestDispatcherMachine = DispatcherMachine.TestCase
TestDispatcherMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

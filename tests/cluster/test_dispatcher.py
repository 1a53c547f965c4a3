import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cluster.dispatcher import Dispatcher, Outcome
from cluster.errors import ClusterError
from cluster.plan import Shard

MAX_ATTEMPTS = 3


def shard(index, rows=4, size=10):
    """A shard that is told apart by its first row."""
    return Shard(index * 100, rows, b"x" * size)


def dispatcher(**bounds):
    """A dispatcher with small bounds."""
    defaults = {"min_shards": 2, "target_rows": 10, "max_bytes": 100, "max_attempts": MAX_ATTEMPTS}
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
        one.add_shard(shard(index, size=60))
    assert [("a", 0), ("a", 100)] == held(one.assign())


def test_shards_of_a_lost_worker_go_first_and_its_late_results_are_refused():
    """Lost shards come first, in row order; what their worker says later is void."""
    one = dispatcher()
    one.add_worker("a")
    for index in range(4):
        one.add_shard(shard(index))
    list(one.assign())
    one.lose_worker("a", "killed")
    one.add_worker("b")
    assert [("b", 0), ("b", 100), ("b", 200)] == held(one.assign())
    assert Outcome.REFUSE is one.done("a", 0)
    assert Outcome.COMMIT is one.done("b", 0)
    assert Outcome.REFUSE is one.done("b", 0)


def test_a_shard_is_given_up_after_its_attempts():
    """The error names the rows, the attempts and the last reason."""
    one = dispatcher()
    one.add_shard(shard(1))
    for attempt in range(1, MAX_ATTEMPTS + 1):
        one.add_worker(attempt)
        assert [attempt] == [a.attempt for a in one.assign()]
        if attempt < MAX_ATTEMPTS:
            one.lose_worker(attempt, "killed")
    with pytest.raises(
        ClusterError, match=r"rows 100 to 103: given up after 3 attempts.*out of memory"
    ):
        one.lose_worker(MAX_ATTEMPTS, "out of memory")


class DispatcherMachine(RuleBasedStateMachine):
    """Any order of events: each shard is committed at most once, and all are in the end."""

    def __init__(self):
        super().__init__()
        self.dispatcher = dispatcher(max_attempts=10_000)
        self.added, self.committed, self.sent = [], [], []
        self.workers = []

    @rule()
    def join(self):
        """A worker comes."""
        self.workers.append(len(self.workers))
        self.dispatcher.add_worker(self.workers[-1])

    @rule(rows=st.integers(1, 12), size=st.integers(0, 200))
    def add(self, rows, size):
        """The plan gives a shard."""
        self.added.append(shard(len(self.added), rows, size))
        self.dispatcher.add_shard(self.added[-1])

    @rule()
    def assign(self):
        """Shards are handed out."""
        self.sent += held(self.dispatcher.assign())

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def answer(self, data):
        """Any answer that was ever asked for arrives, late and doubled ones too."""
        worker, first_row = data.draw(st.sampled_from(self.sent))
        if self.dispatcher.done(worker, first_row) is Outcome.COMMIT:
            self.committed.append(first_row)

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def lose(self, data):
        """Any worker dies, dead ones again."""
        self.dispatcher.lose_worker(data.draw(st.sampled_from(self.workers)), "killed")

    @invariant()
    def nothing_is_doubled(self):
        """No shard is committed or held twice."""
        self.dispatcher.check_invariants()
        assert len(set(self.committed)) == len(self.committed)

    def teardown(self):
        """From any state, one good worker finishes everything."""
        for worker in self.workers:
            self.dispatcher.lose_worker(worker, "killed")
        self.dispatcher.add_worker("last")
        while assignments := held(self.dispatcher.assign()):
            for worker, first_row in assignments:
                assert Outcome.COMMIT is self.dispatcher.done(worker, first_row)
                self.committed.append(first_row)
        assert [s.first_row for s in self.added] == sorted(self.committed)


TestDispatcherMachine = DispatcherMachine.TestCase
TestDispatcherMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

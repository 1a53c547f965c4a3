"""Scheduler: who computes what, in exact numbers."""

import pytest

from kvpool import KVPool, LayerGroup, PoolLimits
from worker.engine.scheduler import Scheduler

from .sequences import make_sequence

FULL = LayerGroup("full", (0,), num_kv_heads=1, head_dim=2, window=None)


class Bench:
    """A scheduler over 4-token blocks, and sequences that never end by themselves."""

    def __init__(
        self,
        num_blocks=100,
        max_num_seqs=4,
        budget=16,
        prefix_caching=True,
        group=FULL,
        **settings,
    ):
        limits = PoolLimits(
            block_size=4,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=400,
        )
        self.pool = KVPool((group,), (num_blocks,), limits, prefix_caching=prefix_caching)
        self.scheduler = Scheduler(
            self.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget, **settings
        )

    def add(self, row_id, prompt, **params):
        """Queue a prompt: token ids, or how many, then like no other row's."""
        ids = [1000 * row_id + i for i in range(prompt)] if isinstance(prompt, int) else prompt
        sequence = make_sequence(ids, row_id=row_id, tables=self.pool.new_tables(), **params)
        self.scheduler.add(sequence)
        return sequence

    def fork(self, parent, *indices):
        """Queue further completions of a row."""
        forks = [
            make_sequence(
                parent.prompt_token_ids,
                row_id=parent.row_id,
                tables=self.pool.new_tables(),
                completion_index=index,
                forked_from=parent,
            )
            for index in indices
        ]
        self.scheduler.add_forks(forks)
        return forks

    def step(self):
        """Schedule and pretend to run; [(row, tokens)], sampling rows get a token."""
        chunks = self.scheduler.schedule()
        samples = [chunk.sequence for chunk in chunks if chunk.samples]
        self.scheduler.computed(chunks)
        for sequence in samples:
            sequence.append(65, None)
        self.scheduler.check_invariants()
        return [(chunk.sequence.row_id, chunk.num_tokens) for chunk in chunks]


def test_long_prompt_is_cut_to_the_budget():
    """A prompt of 40 tokens takes three steps of a 16-token budget, then decodes."""
    bench = Bench()
    bench.add(0, 40)
    assert [bench.step() for _ in range(5)] == [[(0, 16)], [(0, 16)], [(0, 8)], [(0, 1)], [(0, 1)]]


def test_decode_goes_on_beside_a_long_prompt():
    """The running row gets its token in each step, the prompt what is left."""
    bench = Bench()
    bench.add(0, 3)
    bench.step()
    bench.add(1, 40)
    assert [bench.step() for _ in range(3)] == [[(0, 1), (1, 15)]] * 2 + [[(0, 1), (1, 10)]]


def test_older_prompt_leaves_a_token_for_each_younger_row():
    """A long prompt admitted first does not stop rows admitted after it."""
    bench = Bench(budget=8)
    bench.add(0, 6)
    bench.step()
    bench.add(1, 30)
    bench.add(2, 2)
    assert bench.step() == [(0, 1), (1, 7)]
    assert bench.step() == [(0, 1), (1, 7)]
    bench.scheduler._max_num_batched_tokens = 20
    assert bench.step() == [(0, 1), (1, 16), (2, 2)]
    bench.scheduler._max_num_batched_tokens = 8
    assert bench.step() == [(0, 1), (1, 1), (2, 1)]


def test_rows_are_admitted_in_order_up_to_max_num_seqs():
    """The first come run; the others wait."""
    bench = Bench(max_num_seqs=2)
    for row in range(3):
        bench.add(row, 2)
    assert bench.step() == [(0, 2), (1, 2)]
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (2, 1)


def test_finished_row_makes_room_for_the_next():
    """A removed row's place and blocks go to the head of the queue at once."""
    bench = Bench(max_num_seqs=1)
    first, _second = bench.add(0, 2), bench.add(1, 2)
    bench.step()
    bench.scheduler.remove(first)
    assert bench.step() == [(1, 2)]


def _until_preempted(bench):
    """Step until a row is preempted; the chunks of that step."""
    for _ in range(30):
        chunks = bench.step()
        if bench.scheduler.num_preemptions:
            return chunks
    raise AssertionError("nothing was preempted")


def test_newest_is_preempted_and_computed_again():
    """Out of blocks, the newest row gives way and later computes prompt and tokens anew."""
    bench = Bench(num_blocks=6, prefix_caching=False)
    oldest, newest = bench.add(0, 7), bench.add(1, 7)
    assert bench.step() == [(0, 7), (1, 7)]
    assert _until_preempted(bench) == [(0, 1)]
    assert (bench.scheduler.num_preemptions, bench.scheduler.num_waiting) == (1, 1)
    assert (newest.num_tokens, newest.num_computed_tokens) == (13, 0)
    bench.scheduler.remove(oldest)
    assert bench.step() == [(1, 13)]


def test_preempted_row_finds_its_own_blocks_again():
    """What was not overwritten meanwhile is not computed again; it is counted apart, as in vLLM."""
    bench = Bench(num_blocks=6)
    oldest, newest = bench.add(0, 7), bench.add(1, 7)
    _until_preempted(bench)
    bench.scheduler.remove(oldest)
    assert bench.step() == [(1, 13 - 8)]  # the oldest took the last of three full blocks
    assert newest.num_cached_tokens == 0
    assert (bench.scheduler.prefix_queries, bench.scheduler.prefix_hits) == (14, 0)
    assert bench.scheduler.preempted_hits == 8


def test_preempted_row_is_first_in_the_queue():
    """Rows that came later do not overtake a preempted one, though their prefix is cached."""
    bench = Bench(num_blocks=6)
    oldest, newest = bench.add(0, 7), bench.add(1, 7)
    _until_preempted(bench)
    bench.add(2, [*oldest.token_ids[:4], 5])
    bench.scheduler.remove(oldest)
    assert newest.num_tokens == 13
    assert bench.step() == [(1, 13 - 8)]


def test_row_that_is_the_newest_preempts_itself():
    """An older row is never preempted for a younger one."""
    bench = Bench(num_blocks=7, prefix_caching=False)
    bench.add(0, 11)
    bench.add(1, 3)
    assert bench.step() == [(0, 11), (1, 3)]
    assert _until_preempted(bench)[0] == (0, 1)
    assert bench.scheduler.num_running == 1


def test_nothing_is_admitted_in_a_step_that_preempts():
    """Blocks freed by a preemption are for the rows that needed them."""
    bench = Bench(num_blocks=6)
    bench.add(0, 7)
    bench.add(1, 7)
    assert _until_preempted(bench) == [(0, 1)]
    assert bench.step() == [(0, 1)]


def test_admission_leaves_room_for_the_next_block_of_those_that_run():
    """Blocks that a running row takes within a block of tokens are not given to a newcomer."""
    bench = Bench(num_blocks=6)
    bench.add(0, 7)
    bench.add(1, 9)  # 3 blocks, 4 with its next: with 1 for row 0 they are one too many
    assert bench.step() == [(0, 7)]
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (1, 1)
    bench.add(2, 1)
    assert bench.step() == [(0, 1)]  # nobody overtakes a row that waits for blocks


def test_admission_reserves_no_more_than_a_row_can_generate():
    """A row that ends within its blocks reserves nothing more."""
    bench = Bench(num_blocks=4)
    bench.add(0, 7, max_new=1)
    bench.add(1, 7, max_new=1)
    assert bench.step() == [(0, 7), (1, 7)]


def test_admission_counts_blocks_that_are_shared():
    """A prompt whose prefix is held already needs blocks for the rest only."""
    bench = Bench(num_blocks=8, budget=40)
    prefix = list(range(16))
    bench.add(0, [*prefix, 20])
    bench.step()
    bench.add(1, [*prefix, 21])
    assert bench.step() == [(0, 1), (1, 1)]
    assert (bench.scheduler.prefix_queries, bench.scheduler.prefix_hits) == (34, 16)


def test_cached_prefixes_go_first_within_the_look_ahead():
    """Among the rows looked at, those that share go first, longest first; the rest keep order."""
    bench = Bench(max_num_seqs=1, budget=100, look_ahead=4)
    first = bench.add(0, list(range(12)))
    bench.step()
    bench.add(1, 9)
    bench.add(2, [0, 1, 2, 3, 99])
    bench.add(3, [*range(8), 99])
    bench.add(4, 9)
    bench.add(5, [*range(8), 98])
    bench.add(6, [*range(12), 97])  # one place and four ahead: not looked at yet
    order = []
    bench.scheduler.remove(first)
    while bench.scheduler.num_waiting:
        ((row, _),) = bench.step()
        order.append(row)
        bench.scheduler.remove(bench.scheduler._running[0])
    assert order == [3, 6, 5, 2, 1, 4]


def test_no_row_is_overtaken_for_ever():
    """A row without a cached prefix runs after ``look_ahead`` others that have one."""
    bench = Bench(max_num_seqs=1, budget=100, look_ahead=3)
    bench.add(0, list(range(8)))
    bench.step()
    bench.add(1, 9)
    for row in range(2, 12):
        bench.add(row, [*range(8), row])
    order = []
    for _ in range(8):
        bench.scheduler.remove(bench.scheduler._running[0])
        ((row, _),) = bench.step()
        order.append(row)
    assert order == [2, 3, 4, 1, 5, 6, 7, 8]


def test_without_shared_prefixes_first_come_first_served():
    """The order of the queue is the order of arrival."""
    bench = Bench(max_num_seqs=2, budget=100)
    for row in range(6):
        bench.add(row, 5)
    order = []
    while bench.scheduler.num_waiting or bench.scheduler.num_running:
        order += [row for row, _ in bench.step()]
        for sequence in list(bench.scheduler._running):
            bench.scheduler.remove(sequence)
    assert order == [0, 1, 2, 3, 4, 5]


def test_every_row_ends_under_constant_pressure():
    """A pool for a row and a half, rows with and without shared prefixes: all of them finish."""
    bench = Bench(num_blocks=9, max_num_seqs=4, budget=16)
    left = {row: bench.add(row, [row % 3] * 5 + [row] * (row % 11)) for row in range(40)}
    for _ in range(3000):
        if not left:
            break
        bench.step()
        for sequence in list(bench.scheduler._running):
            if sequence.num_generated_tokens >= 12:
                bench.scheduler.remove(left.pop(sequence.row_id))
    assert left == {}
    assert bench.scheduler.num_preemptions > 3
    assert bench.pool.usage.used == 0


def test_forks_share_the_prompt_and_compute_its_last_token():
    """Completions of a row run beside the first one, in front of rows that wait."""
    bench = Bench(budget=100)
    parent = bench.add(0, 10)
    bench.add(1, 3)
    bench.scheduler.limit_running(1)
    assert bench.step() == [(0, 10)]
    forks = bench.fork(parent, 1, 2)
    bench.scheduler.limit_running(4)
    assert bench.step() == [(0, 1), (0, 1), (0, 1), (1, 3)]
    tables = [sequence.tables[0].blocks.tolist() for sequence in (parent, *forks)]
    assert [table[:2] for table in tables] == [tables[0][:2]] * 3
    assert len({table[2] for table in tables}) == 3  # the last block was copied


def test_fork_of_a_row_that_ended_starts_from_the_prefix_cache():
    """There is nothing to share any more, but full blocks are still found."""
    bench = Bench(budget=100)
    parent = bench.add(0, 10)
    bench.step()
    bench.fork(parent, 1)
    bench.scheduler.remove(parent)
    assert bench.step() == [(0, 2)]


WINDOW = LayerGroup("window", (0,), num_kv_heads=1, head_dim=2, window=32)


@pytest.mark.parametrize("num_blocks", [16, 18, 20, 22, 26])
@pytest.mark.parametrize("prefix_caching", [False, True])
def test_chunks_shrink_to_the_blocks_that_are_free(num_blocks, prefix_caching):
    """A long prompt beside a row that decodes, in a window group too small for a whole chunk."""
    bench = Bench(num_blocks, budget=32, group=WINDOW, prefix_caching=prefix_caching)
    bench.add(0, 3)
    bench.step()
    bench.add(1, 200)
    steps = [bench.step() for _ in range(70)]
    assert bench.scheduler.num_preemptions <= 1
    if num_blocks >= 2 * 9:  # the window and a block, for either row
        assert bench.scheduler.num_preemptions == 0
        assert all([row for row, _ in step] == [0, 1] for step in steps)
        assert sum(tokens for step in steps for row, tokens in step if row == 1) >= 200


def test_fork_reserves_the_block_that_it_copies():
    """It is not let in where its first write would take the last block from its parent."""
    bench = Bench(num_blocks=5, budget=100, prefix_caching=False)
    parent = bench.add(0, 10)
    bench.step()
    bench.fork(parent, 1)
    for _ in range(4):
        assert bench.step() == [(0, 1)]
    assert bench.scheduler.num_preemptions == 0


def test_refused_row_is_looked_at_again_when_blocks_come_free():
    """Nothing is ranked while nothing can come in; an abort or an end asks anew."""
    bench = Bench(num_blocks=6)
    bench.add(0, 7)
    waiting = bench.add(1, 9)
    bench.step()
    ranked = []
    bench.scheduler._rank = lambda sequence: (ranked.append(sequence), True)[1:]
    bench.step()
    assert ranked == []
    bench.scheduler.remove(waiting)
    bench.add(2, 3)
    assert bench.step() == [(0, 1), (2, 3)]
    assert len(ranked) == 1


def test_aborted_rows_leave_nothing():
    """Waiting, running or preempted: its blocks are free and its place is gone."""
    bench = Bench(num_blocks=6)
    oldest, newest = bench.add(0, 7), bench.add(1, 7)
    _until_preempted(bench)
    waiting = bench.add(2, 3)
    for sequence in (newest, waiting, oldest):
        bench.scheduler.remove(sequence)
        bench.scheduler.check_invariants()
    assert bench.step() == []
    assert bench.pool.usage.used == 0


def test_budget_is_never_exceeded_and_decode_goes_first():
    """In any mix, a step computes at most the budget, and each running row gets a token."""
    bench = Bench(max_num_seqs=6, budget=8)
    for row in range(20):
        bench.add(row, 1 + 7 * (row % 5))
    for step in range(60):
        running = {sequence.row_id for sequence in bench.scheduler._running}
        chunks = bench.step()
        assert sum(tokens for _, tokens in chunks) <= 8
        assert running <= {row for row, _ in chunks}
        if step % 3 == 0 and bench.scheduler._running:
            bench.scheduler.remove(bench.scheduler._running[0])


def test_row_too_large_is_our_bug():
    """What never fits must have been refused before; in the queue it would block all."""
    bench = Bench(num_blocks=4)
    assert (bench.scheduler.fits(16), bench.scheduler.fits(17)) == (True, False)
    with pytest.raises(AssertionError, match="block the queue"):
        bench.add(0, 17)


def test_nothing_to_do_is_an_empty_step():
    """Without rows there are no chunks."""
    assert Bench().step() == []


def test_fewer_may_run_the_newest_wait_and_come_back_in_order():
    """A limit of two preempts the newest two and admits nobody; without it all go on."""
    bench = Bench()
    for row in range(5):
        bench.add(row, 3)
    assert [0, 1, 2, 3] == [row for row, _ in bench.step()]
    bench.scheduler.limit_running(2)
    assert [(0, 1), (1, 1)] == bench.step()
    assert (2, 2, 3) == (
        bench.scheduler.num_running,
        bench.scheduler.num_preemptions,
        bench.scheduler.num_waiting,
    )
    bench.scheduler.limit_running(99)
    assert [0, 1, 2, 3] == [row for row, _ in bench.step()]


def test_one_always_runs():
    """A limit of none is one: a queue that nobody leaves would be a job that hangs."""
    bench = Bench()
    bench.add(0, 3)
    bench.add(1, 3)
    bench.scheduler.limit_running(0)
    assert [(0, 3)] == bench.step()
    assert [(0, 1)] == bench.step()

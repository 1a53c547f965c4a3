"""Scheduler: who computes what, in exact numbers."""

import pytest

from kvpool import KVPool, LayerGroup, PoolLimits
from worker.engine.scheduler import Scheduler

from .sequences import make_sequence

FULL = LayerGroup("full", (0,), num_kv_heads=1, head_dim=2, window=None)


class Bench:
    """A scheduler over 4-token blocks, and sequences that never end by themselves."""

    def __init__(self, num_blocks=100, max_num_seqs=4, budget=16):
        limits = PoolLimits(
            block_size=4,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=400,
        )
        self.pool = KVPool((FULL,), (num_blocks,), limits)
        self.scheduler = Scheduler(
            self.pool, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
        )

    def add(self, row_id, num_tokens):
        """Queue a prompt of that many tokens."""
        sequence = make_sequence([1] * num_tokens, row_id=row_id, tables=self.pool.new_tables())
        self.scheduler.add(sequence)
        return sequence

    def step(self):
        """Schedule and pretend to run; [(row, tokens)], sampling rows get a token."""
        chunks = self.scheduler.schedule()
        for chunk in chunks:
            samples = chunk.samples
            chunk.sequence.computed(chunk.num_tokens)
            if samples:
                chunk.sequence.append(65, None)
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


def test_newest_is_preempted_and_computed_again():
    """Out of blocks, the newest row gives way and later computes prompt and tokens anew."""
    bench = Bench(num_blocks=4)
    oldest, newest = bench.add(0, 7), bench.add(1, 7)
    assert bench.step() == [(0, 7), (1, 7)]
    assert bench.step() == [(0, 1), (1, 1)]
    assert bench.step() == [(0, 1)]
    assert (bench.scheduler.num_preemptions, bench.scheduler.num_waiting) == (1, 1)
    assert (newest.num_tokens, newest.num_computed_tokens) == (9, 0)
    bench.scheduler.remove(oldest)
    assert bench.step() == [(1, 9)]


def test_preempted_row_is_first_in_the_queue():
    """Rows that came later do not overtake a preempted one."""
    bench = Bench(num_blocks=4)
    oldest = bench.add(0, 7)
    bench.add(1, 7)
    bench.step()
    bench.step()
    bench.add(2, 1)
    bench.step()
    bench.scheduler.remove(oldest)
    assert bench.step() == [(1, 9), (2, 1)]


def test_row_that_is_the_newest_preempts_itself():
    """An older row is never preempted for a younger one."""
    bench = Bench(num_blocks=4)
    bench.add(0, 12)
    newest = bench.add(1, 4)
    assert bench.step() == [(0, 12), (1, 4)]
    bench.scheduler._running[0].num_computed_tokens = 12
    assert bench.step() == [(0, 1)]
    assert newest.num_computed_tokens == 0


def test_nothing_is_admitted_in_a_step_that_preempts():
    """Blocks freed by a preemption are for the rows that needed them."""
    bench = Bench(num_blocks=4)
    bench.add(0, 7)
    bench.add(1, 7)
    bench.step()
    bench.step()
    assert bench.step() == [(0, 1)]
    assert bench.step() == [(0, 1)]


def test_row_too_large_is_our_bug():
    """What never fits must have been refused before; in the queue it would block all."""
    bench = Bench(num_blocks=4)
    assert (bench.scheduler.fits(16), bench.scheduler.fits(17)) == (True, False)
    with pytest.raises(AssertionError, match="block the queue"):
        bench.add(0, 17)


def test_nothing_to_do_is_an_empty_step():
    """Without rows there are no chunks."""
    assert Bench().step() == []

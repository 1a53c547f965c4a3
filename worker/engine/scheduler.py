"""Scheduler: which sequences compute how many tokens in the next step."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from kvpool import KVPool

from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """The next ``num_tokens`` uncomputed tokens of a sequence; their blocks are allocated."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """Whether the chunk reaches the last token, so that its logits give the next one."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens


class Scheduler:
    """First come, first served, under a budget of tokens a step and a pool of blocks.

    Every running sequence computes at least one token in every step, so a long prompt does not
    stop the others; what is left of the budget goes to the oldest. When the pool is full, the
    newest running sequence gives up its blocks and goes back to the head of the queue, to be
    computed again from its tokens. The oldest is never preempted for another and always fits
    alone (``fits``), so each step makes progress.
    """

    def __init__(self, pool: KVPool, *, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        """Sequences that hold no blocks."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    def fits(self, num_tokens: int) -> bool:
        """Whether the pool can hold a sequence of that many tokens when it is alone."""
        return num_tokens <= self._pool.max_sequence_tokens

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence whose tokens fit."""
        assert self.fits(sequence.num_tokens), "a sequence that never fits would block the queue"
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is finished or aborted, and free its blocks."""
        self._pool.free(sequence.tables)
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def schedule(self) -> list[ScheduledChunk]:
        """The chunks of the next step, oldest sequence first; empty when there is nothing to do."""
        num_preemptions = self.num_preemptions
        chunks = self._continue_running()
        if self.num_preemptions == num_preemptions:
            chunks += self._admit(self._max_num_batched_tokens - _num_tokens(chunks))
        return chunks

    def check_invariants(self) -> None:
        """Blocks are held by running sequences alone, and those are older than the waiting."""
        self._pool.check_invariants(sequence.tables for sequence in self._sequences())
        assert self.num_running <= self._max_num_seqs, "too many sequences run"
        for sequence in self._waiting:
            assert sequence.num_computed_tokens == 0, "a waiting sequence claims K/V"
            assert all(table.num_columns == 0 for table in sequence.tables), "and holds blocks"
        for sequence in self._running:
            assert sequence.num_uncomputed_tokens > 0, "a running sequence has nothing to do"
            assert self.fits(sequence.num_tokens), "a running sequence cannot go on"

    def _continue_running(self) -> list[ScheduledChunk]:
        chunks: list[ScheduledChunk] = []
        budget = self._max_num_batched_tokens
        for sequence in tuple(self._running):
            younger = len(self._running) - len(chunks) - 1
            if younger < 0:  # preempted meanwhile, as all after it
                break
            num_tokens = self._chunk(sequence, budget - younger)
            if self._make_room(sequence, num_tokens):
                chunks.append(ScheduledChunk(sequence, num_tokens))
                budget -= num_tokens
        return chunks

    def _chunk(self, sequence: Sequence, budget: int) -> int:
        """Tokens that a sequence computes next: within the budget, and such that it fits alone."""
        room = self._pool.longest_chunk(sequence.num_computed_tokens)
        return min(sequence.num_uncomputed_tokens, budget, room)

    def _make_room(self, sequence: Sequence, num_tokens: int) -> bool:
        """Allocate a chunk's blocks, preempting from the newest; False: it was the newest."""
        self._pool.free_outside_window(sequence.tables, sequence.num_computed_tokens)
        while not self._allocate(sequence, num_tokens):
            newest = self._running.pop()
            self._preempt(newest)
            if newest is sequence:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._pool.free(sequence.tables)
        sequence.num_computed_tokens = 0
        self._waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _admit(self, budget: int) -> list[ScheduledChunk]:
        chunks: list[ScheduledChunk] = []
        while self._waiting and len(self._running) < self._max_num_seqs and budget > 0:
            sequence = self._waiting[0]
            num_tokens = self._chunk(sequence, budget)
            if not self._allocate(sequence, num_tokens):
                break
            self._running.append(self._waiting.popleft())
            chunks.append(ScheduledChunk(sequence, num_tokens))
            budget -= num_tokens
        return chunks

    def _allocate(self, sequence: Sequence, num_tokens: int) -> bool:
        return self._pool.allocate(sequence.tables, sequence.num_computed_tokens + num_tokens)

    def _sequences(self) -> Iterator[Sequence]:
        yield from self._running
        yield from self._waiting


def _num_tokens(chunks: list[ScheduledChunk]) -> int:
    return sum(chunk.num_tokens for chunk in chunks)

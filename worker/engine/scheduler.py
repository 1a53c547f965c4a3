"""Scheduler: which sequences compute how many tokens in the next step."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from kvpool import BlockTables, KVPool

from .sequence import Sequence

LOOK_AHEAD = 32
"""Waiting sequences, beyond those there are places for, that are looked at for cached prefixes."""


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

    A step's budget goes to the running sequences first, a token each, so that a long prompt does
    not stop the others; what is left goes to the oldest, and then to sequences that wait.

    *Admission.* Of the sequences at the head of the queue, those go first whose prefix is in the
    pool; the rest keep their order, and one overtaken ``look_ahead`` times goes first. A
    sequence is admitted when the pool has room for all its tokens and for another block of each
    that runs: those would soon be taken from somebody again.

    *Preemption.* When the pool is full, the newest running sequence gives up its blocks and goes
    back to the head of the queue, to be computed again from its tokens. The oldest is never
    preempted for another and always fits alone (``fits``), so each step makes progress. The same
    happens to the newest when fewer may run than do (``limit_running``).

    Attributes:
        num_preemptions: times a sequence gave up its blocks.
        prefix_queries: prompt tokens of sequences admitted for the first time.
        prefix_hits: those of them whose K/V were there, in the prefix cache or a sibling's.
        preempted_hits: tokens of preempted sequences whose K/V were still there when they were
            admitted again.
    """

    def __init__(
        self,
        pool: KVPool,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        look_ahead: int = LOOK_AHEAD,
    ) -> None:
        self.num_preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preempted_hits = 0
        self._pool = pool
        self._max_num_seqs = max_num_seqs
        self._max_running = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._look_ahead = look_ahead
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free_when_refused: tuple[int, ...] | None = None

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

    def limit_running(self, max_running: int) -> None:
        """Let at most so many sequences run from the next step on, at least one."""
        self._max_running = max(1, min(max_running, self._max_num_seqs))

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence whose tokens fit."""
        assert self.fits(sequence.num_tokens), "a sequence that never fits would block the queue"
        self._waiting.append(sequence)

    def add_forks(self, forks: Iterable[Sequence]) -> None:
        """Queue forks of a running sequence, in front of all others: they share its blocks."""
        self._waiting.extendleft(reversed(list(forks)))

    def remove(self, sequence: Sequence) -> None:
        """Take out a sequence that is finished or aborted, and free its blocks."""
        self._free_when_refused = None
        self._pool.free(sequence.tables)
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def schedule(self) -> list[ScheduledChunk]:
        """The chunks of the next step, oldest sequence first; empty when there is nothing to do."""
        while len(self._running) > self._max_running:
            self._preempt(self._running.pop())
        num_preemptions = self.num_preemptions
        chunks = self._continue_running()
        if self.num_preemptions == num_preemptions:
            chunks += self._admit(self._max_num_batched_tokens - _num_tokens(chunks))
        self._pool.note_use()
        return chunks

    def computed(self, chunks: Iterable[ScheduledChunk]) -> None:
        """Take note that the K/V of these chunks are written, so that others may share them."""
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.computed(chunk.num_tokens)
            tokens = sequence.num_computed_tokens
            self._pool.publish(sequence.tables, sequence.token_ids, tokens)

    def check_invariants(self) -> None:
        """Blocks are held by running sequences alone; for tests."""
        self._pool.check_invariants(sequence.tables for sequence in self._sequences())
        assert self.num_running <= self._max_num_seqs, "too many sequences run"
        for sequence in self._waiting:
            assert sequence.num_computed_tokens == 0, "a waiting sequence claims K/V"
            assert sequence.tables.is_empty, "and holds blocks"
            assert sequence.times_overtaken <= self._look_ahead + self._max_num_seqs, "starved"
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
            num_tokens = self._continue(sequence, budget - younger)
            if num_tokens > 0:
                chunks.append(ScheduledChunk(sequence, num_tokens))
                budget -= num_tokens
        return chunks

    def _continue(self, sequence: Sequence, budget: int) -> int:
        """Allocate a sequence's next chunk, preempting from the newest; 0: it was the newest."""
        self._pool.free_outside_window(sequence.tables, sequence.num_computed_tokens)
        if sequence.num_generated_tokens > 1:  # its forks had their chance
            self._pool.drop_saved_state(sequence.tables)
        while not (num_tokens := self._allocate(sequence, budget)):
            newest = self._running.pop()
            self._preempt(newest)
            if newest is sequence:
                return 0
        return num_tokens

    def _preempt(self, sequence: Sequence) -> None:
        self._give_up(sequence)
        self._waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _admit(self, budget: int) -> list[ScheduledChunk]:
        chunks: list[ScheduledChunk] = []
        places = self._max_running - len(self._running)
        for sequence in self._admission_order(places if budget > 0 else 0):
            if budget <= 0 or places <= 0:
                break
            num_tokens = self._start(sequence, budget)
            if num_tokens == 0:
                self._free_when_refused = self._pool.num_free
                break
            self._leave_queue(sequence)
            self._running.append(sequence)
            chunks.append(ScheduledChunk(sequence, num_tokens))
            budget -= num_tokens
            places -= 1
        return chunks

    def _admission_order(self, places: int) -> list[Sequence]:
        """Who is asked to come in, for so many places: see the class.

        Nobody while no more blocks are free than when somebody was refused last.
        """
        if places <= 0 or not self._waiting or self._still_refused():
            return []
        self._free_when_refused = None
        ahead = list(islice(self._waiting, places + self._look_ahead))
        return sorted(ahead, key=self._rank)

    def _still_refused(self) -> bool:
        refused = self._free_when_refused
        return (
            refused is not None
            and bool(self._running)
            and all(now <= then for now, then in zip(self._pool.num_free, refused, strict=True))
        )

    def _rank(self, sequence: Sequence) -> tuple[bool, int]:
        """Sort key of a waiting sequence; equal ones keep their order in the queue."""
        if sequence.goes_first or sequence.times_overtaken >= self._look_ahead:
            return False, 0
        return True, -self._pool.longest_prefix(sequence.tables, sequence.token_ids)

    def _leave_queue(self, sequence: Sequence) -> None:
        """Take an admitted sequence out of the queue; those before it were overtaken."""
        index = self._waiting.index(sequence)
        for overtaken in islice(self._waiting, index):
            overtaken.times_overtaken += 1
        del self._waiting[index]

    def _start(self, sequence: Sequence, budget: int) -> int:
        """Give a waiting sequence its first blocks; the tokens it computes, 0 if it waits on."""
        self._share(sequence)
        num_tokens = self._allocate(sequence, budget) if self._has_room(sequence) else 0
        if num_tokens == 0:
            self._give_up(sequence)
            return 0
        if sequence.num_known_tokens == 0:
            sequence.num_cached_tokens = sequence.num_computed_tokens
            self.prefix_queries += sequence.num_tokens
            self.prefix_hits += sequence.num_computed_tokens
        else:
            self.preempted_hits += sequence.num_computed_tokens
        return num_tokens

    def _share(self, sequence: Sequence) -> None:
        """Start a sequence with the K/V that there are: a running sibling's, or a cached prefix."""
        if (fork := self._fork(sequence)) is not None:
            sequence.tables = fork
            sequence.num_computed_tokens = sequence.num_tokens - 1
            return
        cached = self._pool.longest_prefix(sequence.tables, sequence.token_ids)
        self._pool.reuse(sequence.tables, cached)
        sequence.num_computed_tokens = cached

    def _fork(self, sequence: Sequence) -> BlockTables | None:
        """Tables that share all of the prompt but the last token, which gives the logits."""
        parent, shared = sequence.forked_from, len(sequence.prompt_token_ids) - 1
        if parent is None or parent not in self._running or parent.num_computed_tokens < shared:
            return None
        return None if sequence.num_generated_tokens else self._pool.fork(parent.tables, shared)

    def _has_room(self, newcomer: Sequence) -> bool:
        """Whether the newcomer will not soon take blocks from somebody or be preempted."""
        if not self._running:
            return True
        soon = [self._soon(sequence) for sequence in (*self._running, newcomer)]
        return all(
            sum(blocks) <= free for *blocks, free in zip(*soon, self._pool.num_free, strict=True)
        )

    def _needed_soon(self, sequence: Sequence) -> list[int]:
        """In each group, how many running sequences but this one take another block soon."""
        soon = [self._soon(other) for other in self._running if other is not sequence]
        return [sum(map(bool, blocks)) for blocks in zip(*soon, strict=True)]

    def _soon(self, sequence: Sequence) -> tuple[int, ...]:
        """Blocks of each group that a sequence takes for its tokens and a block of new ones."""
        end = min(sequence.num_tokens + self._pool.block_size, sequence.max_tokens)
        return self._pool.ahead(sequence.tables, sequence.num_computed_tokens, end)

    def _allocate(self, sequence: Sequence, budget: int) -> int:
        """Allocate the next chunk, within the budget and the blocks that are free; its tokens.

        More than one token only as long as a block is left for each other that needs one soon.
        """
        tables, start = sequence.tables, sequence.num_computed_tokens
        num_tokens = min(sequence.num_uncomputed_tokens, budget)
        if self._pool.num_states and sequence.will_fork:
            num_tokens = min(num_tokens, self._until_forks(sequence))
        room = self._pool.room(tables, start)
        if num_tokens > 1 and room > 1:
            room = max(1, self._pool.room(tables, start, self._needed_soon(sequence)))
        num_tokens = min(num_tokens, room)
        if num_tokens > 0:
            fits = self._pool.allocate(sequence.tables, start, start + num_tokens)
            assert fits, "there was room"
        return num_tokens

    def _until_forks(self, sequence: Sequence) -> int:
        """Tokens up to where forks begin, the prompt's last; there, the state is saved for them."""
        last = len(sequence.prompt_token_ids) - 1
        if sequence.num_computed_tokens == last > 0:
            self._pool.save_state(sequence.tables, last)
        return max(1, last - sequence.num_computed_tokens)

    def _give_up(self, sequence: Sequence) -> None:
        """Take a sequence's blocks away."""
        self._pool.free(sequence.tables)
        sequence.num_computed_tokens = 0

    def _sequences(self) -> Iterator[Sequence]:
        yield from self._running
        yield from self._waiting


def _num_tokens(chunks: list[ScheduledChunk]) -> int:
    return sum(chunk.num_tokens for chunk in chunks)

"""A scheduler whose every step is checked against what `Scheduler` promises."""

from dataclasses import dataclass
from itertools import combinations

from worker.engine.scheduler import Scheduler
from worker.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Asked:
    """A sequence asked to come in: whether nobody may overtake it, and what of it is cached."""

    sequence: Sequence
    urgent: bool
    cached: int

    def goes_before(self, other):
        """Whether it may overtake the other one."""
        if self.urgent or other.urgent:
            return self.urgent and not other.urgent
        return self.cached > other.cached


class WatchedScheduler(Scheduler):
    """Budget, decode first, preemption of the newest, order of admission: checked in each step."""

    def schedule(self):
        """Schedule and check."""
        ran, waited = list(self._running), list(self._waiting)
        self.preempted, self.asked = [], []
        chunks = super().schedule()
        self._check_budget(chunks)
        stayed = ran[: len(ran) - len(self.preempted)]
        self._check_preemption(ran, stayed)
        self._check_admission(stayed, waited)
        assert chunks or not (ran or waited), "there is work, and no step"
        return chunks

    def _preempt(self, sequence):
        tokens = list(sequence.token_ids)
        super()._preempt(sequence)
        assert (sequence.num_computed_tokens, sequence.token_ids) == (0, tokens)
        self.preempted.append(sequence)

    def _admission_order(self, places):
        order = super()._admission_order(places)
        self.asked = [
            Asked(
                sequence,
                sequence.goes_first or sequence.times_overtaken >= self._look_ahead,
                self._pool.longest_prefix(sequence.tables, sequence.token_ids),
            )
            for sequence in order
        ]
        return order

    def _check_budget(self, chunks):
        """Everyone who runs computes, the oldest first, all together no more than the budget."""
        assert [chunk.sequence for chunk in chunks] == self._running
        assert sum(chunk.num_tokens for chunk in chunks) <= self._max_num_batched_tokens
        assert all(0 < c.num_tokens <= c.sequence.num_uncomputed_tokens for c in chunks)

    def _check_preemption(self, ran, stayed):
        """The newest went, newest first, to the head of the queue; nobody came in for them."""
        went = ran[len(stayed) :]
        assert self.preempted == went[::-1]
        assert stayed or not ran, "the oldest was preempted"
        assert list(self._waiting)[: len(went)] == went
        assert not went or self._running == stayed

    def _check_admission(self, stayed, waited):
        """Those came in who were asked first; the order of the queue but for whose prefix is there.

        Who was asked stood within the places and the look-ahead.
        """
        came = self._running[len(stayed) :]
        assert came == [asked.sequence for asked in self.asked[: len(came)]]
        within = self._max_num_seqs - len(stayed) + self._look_ahead
        places = {sequence: place for place, sequence in enumerate(waited[:within])}
        assert {asked.sequence for asked in self.asked} <= places.keys()
        for first, second in combinations(self.asked, 2):
            overtakes = places[first.sequence] > places[second.sequence]
            assert first.goes_before(second) or not overtakes
            assert not second.goes_before(first)

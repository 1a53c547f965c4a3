"""Sampler: from logits to the next token of each sequence."""

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from worker.kernels.native import address_of
from worker.kernels.sample_task import ITEMS, ROWS, choose_task, likeliest_task
from worker.kernels.sampling import NO_TOKEN
from worker.kernels.scratch import make_scratch
from worker.models.logits import Logits
from worker.program import Program
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .completion import TokenLogprobs
from .sampling_rows import SamplingRows
from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class Sample:
    """A sampled token, with its log-probabilities when the row asked for them."""

    token_id: int
    logprobs: TokenLogprobs | None = None


class Sampler:
    """Samples one token a row; a row's token does not depend on the other rows.

    The order is that of vLLM: log-probabilities are reported as the model gave them; then come
    penalties, temperature, min_p, top_k and top_p, each on what the one before has left.
    """

    def __init__(self, vocab_size: int, team: ThreadTeam) -> None:
        """Prepare for logits of that many tokens; logits past them are padding."""
        self._vocab_size = vocab_size
        self._team = team
        self._scratch = [make_scratch(vocab_size) for _ in range(team.threads)]
        addresses = [[address_of(part) for part in scratch] for scratch in self._scratch]
        self._addresses = np.array(addresses, np.int64)

    @cached_property
    def _program(self) -> Program:
        """What rows that need their logits go through; greedy jobs never compile it."""
        program = Program(self._team, Stages(), header_words=2)  # a stage of the engine's already
        arguments = (self._vocab_size, address_of(self._addresses))
        for task in (choose_task, likeliest_task):
            program.add_task("sampling", task, arguments, items_word=ITEMS)
        program.finish()
        return program

    def sample(self, logits: Logits, sequences: Rows[Sequence]) -> list[Sample | None]:
        """One sample a row.

        Args:
            logits: of R rows, kept where the sequence's parameters need them; penalties change
                them meanwhile.
            sequences: the R sequences the rows belong to.

        Returns:
            R samples; None where the row's logits are not finite, or penalties make them so.
        """
        assert len(logits) == len(sequences), (len(logits), len(sequences))
        samples = [_sample(token) for token in logits.best_token.tolist()]
        looking = [
            index
            for index, sequence in enumerate(sequences)
            if samples[index] is not None and sequence.params.needs_logits
        ]
        if looking:
            found = self._look(logits, looking, [sequences[index] for index in looking])
            for index, sample in zip(looking, found, strict=True):
                samples[index] = sample
        return samples

    def _look(
        self, logits: Logits, indices: Rows[int], sequences: Rows[Sequence]
    ) -> list[Sample | None]:
        """Sample the rows of these indices, which need their logits."""
        rows = SamplingRows(logits, indices, sequences, self._vocab_size)
        self._program.header[[ITEMS, ROWS]] = len(indices), address_of(rows.words)
        self._program.run()
        return list(map(_sample, rows.tokens(), rows.logprobs()))


def _sample(token: int, logprobs: TokenLogprobs | None = None) -> Sample | None:
    return None if token == NO_TOKEN else Sample(token, logprobs)

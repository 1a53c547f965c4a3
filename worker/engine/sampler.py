"""Sampler: from logits to the next token of each sequence."""

import math
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.kernels.penalties import penalise, restore
from worker.kernels.sampling import NO_TOKEN, choose, likeliest
from worker.kernels.scratch import Scratch, make_scratch
from worker.models.logits import Logits
from worker.thread_team import ThreadTeam

from .completion import TokenLogprobs
from .draws import uniform
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
        self._free = [make_scratch(vocab_size) for _ in range(team.threads)]

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
            row
            for row, sequence in enumerate(sequences)
            if samples[row] is not None and sequence.params.needs_logits
        ]

        def look(item: int) -> None:
            row = looking[item]
            assert logits.kept[row], f"row {row}: its logits were not kept"
            values, best = logits.rows[row, : self._vocab_size], int(logits.best_token[row])
            scratch = self._free.pop()  # one step under the GIL: no two threads get the same
            try:
                samples[row] = _sample_row(values, best, sequences[row], scratch)
            finally:
                self._free.append(scratch)

        self._team.run(look, len(looking))
        return samples


def _sample(token: int) -> Sample | None:
    return None if token == NO_TOKEN else Sample(token)


def _sample_row(
    row: NDArray[np.float32], best: int, sequence: Sequence, scratch: Scratch
) -> Sample | None:
    """Sample from finite logits, the best of which is known."""
    params = sequence.params
    token = best
    if params.has_penalties or params.temperature > 0:
        token = _choose(row, sequence, scratch)
    if token == NO_TOKEN or params.logprobs is None:
        return _sample(token)
    return Sample(token, _logprobs(row, token, params.logprobs, scratch))


def _choose(row: NDArray[np.float32], sequence: Sequence, scratch: Scratch) -> int:
    """The token drawn after penalties; the row is afterwards as before."""
    params, counts = sequence.params, sequence.token_counts
    draw = 0.0
    if params.temperature > 0:
        draw = uniform(sequence.draw_key, sequence.num_generated_tokens)
    if counts is not None:
        factors = (
            np.float32(params.repetition_penalty),
            np.float32(params.presence_penalty),
            np.float32(params.frequency_penalty),
        )
        penalise(row, counts.tokens, counts.generated, *factors, scratch.before)
    filters = (params.temperature, params.min_p, params.top_k, params.top_p)
    token = choose(row, *filters, draw, scratch)
    if counts is not None:
        restore(row, counts.tokens, scratch.before)
    return int(token)


def _logprobs(row: NDArray[np.float32], token: int, top: int, scratch: Scratch) -> TokenLogprobs:
    """Log-probabilities under the model itself, rounded to float32."""
    greatest, total = likeliest(row, top, scratch)
    log_total = greatest + math.log(total)
    tokens = np.append(scratch.candidates[: min(top, row.size)], token)
    *logprobs, own = (row[tokens].astype(np.float64) - log_total).astype(np.float32).tolist()
    return TokenLogprobs(token, own, tuple(zip(tokens.tolist(), logprobs, strict=False)))

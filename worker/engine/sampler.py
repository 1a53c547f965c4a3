"""Sampler: from logits to the next token of each sequence."""

import math
from collections.abc import Sequence as Rows
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.kernels.sampling import pick, softmax_weights
from worker.models.logits import Logits

from .completion import TokenLogprobs
from .draws import uniform
from .largest import largest
from .sampling_params import SamplingParams
from .sequence import Sequence

_FIRST_NUCLEUS = 64


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

    def __init__(self, vocab_size: int) -> None:
        """Prepare for logits of that many tokens; logits past them are padding."""
        self._weights = np.empty(vocab_size, np.float64)

    def sample(self, logits: Logits, sequences: Rows[Sequence]) -> list[Sample | None]:
        """One sample a row.

        Args:
            logits: of R rows, kept where the sequence's parameters need them.
            sequences: the R sequences the rows belong to.

        Returns:
            R samples; None where the row's logits are not finite, or penalties make them so.
        """
        rows, best = logits.rows[:, : self._weights.size], logits.best_token.tolist()
        return [
            None if token < 0 else self._sample_row(row, sequence, token)
            for row, sequence, token in zip(rows, sequences, best, strict=True)
        ]

    def _sample_row(
        self, row: NDArray[np.float32], sequence: Sequence, greedy: int
    ) -> Sample | None:
        params = sequence.params
        token = greedy
        if params.has_penalties or params.temperature > 0:
            left = penalised(row, sequence)
            if params.has_penalties and not np.isfinite(left.max()):
                return None
            token = self._choose(left, sequence)
        if params.logprobs is None:
            return Sample(token)
        return Sample(token, self._logprobs(row, token, params.logprobs))

    def _choose(self, row: NDArray[np.float32], sequence: Sequence) -> int:
        """The token drawn from a row's (penalised) logits."""
        params = sequence.params
        if params.temperature == 0:
            return int(row.argmax())
        total = softmax_weights(row, params.temperature, params.min_p, self._weights)
        draw = uniform(sequence.draw_key, sequence.num_generated_tokens)
        ids = _candidates(row, self._weights, total, params)
        if ids is None:
            return int(pick(self._weights, draw * total))
        weights = self._weights[ids]
        return int(ids[pick(weights, draw * float(np.cumsum(weights)[-1]))])

    def _logprobs(self, row: NDArray[np.float32], token: int, top: int) -> TokenLogprobs:
        """Log-probabilities under the model itself, rounded to float32."""
        total = softmax_weights(row, 1.0, 0.0, self._weights)
        log_total = float(row.max()) + math.log(total)

        def logprob(token_id: int) -> float:
            return float(np.float32(float(row[token_id]) - log_total))

        ids = largest(row, top).tolist()
        return TokenLogprobs(token, logprob(token), tuple((i, logprob(i)) for i in ids))


def penalised(row: NDArray[np.float32], sequence: Sequence) -> NDArray[np.float32]:
    """The row after the penalties: itself without any, else a copy.

    The repetition penalty looks at prompt and completion, the other two at the completion.
    """
    params = sequence.params
    if not params.has_penalties:
        return row
    row = row.copy()
    with np.errstate(over="ignore"):
        _penalise(row, sequence)
    return row


def _penalise(row: NDArray[np.float32], sequence: Sequence) -> None:
    params = sequence.params
    seen = np.unique(sequence.token_ids)
    # Exactly as published (Keskar et al. 2019), with the sign mended for negative logits.
    scale = np.float32(params.repetition_penalty)
    row[seen] = np.where(row[seen] > 0, row[seen] / scale, row[seen] * scale)
    generated, counts = np.unique(
        np.array(sequence.generated_token_ids, np.int64), return_counts=True
    )
    row[generated] -= np.float32(params.presence_penalty)
    row[generated] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)


def _candidates(
    row: NDArray[np.float32],
    weights: NDArray[np.float64],
    total: float,
    params: SamplingParams,
) -> NDArray[np.intp] | None:
    """Tokens that top_k and top_p leave, most likely first; None when all stay."""
    if 0 < params.top_k < row.size:
        ids = largest(row, params.top_k)
        running = np.cumsum(weights[ids])
        return ids[: _nucleus(running, params.top_p * running[-1])]
    if params.top_p == 1:
        return None
    return _largest_until(row, weights, params.top_p * total)


def _largest_until(
    row: NDArray[np.float32], weights: NDArray[np.float64], mass: float
) -> NDArray[np.intp]:
    """The fewest most likely tokens whose weights reach ``mass``.

    Most often a few tokens do: the number looked at grows until they are enough.
    """
    count = _FIRST_NUCLEUS
    while True:
        ids = largest(row, count)
        running = np.cumsum(weights[ids])
        if running[-1] >= mass or count >= row.size:
            return ids[: _nucleus(running, mass)]
        count *= 8


def _nucleus(running: NDArray[np.float64], mass: float) -> int:
    """How many tokens to keep: up to and with the one whose running sum reaches ``mass``."""
    return min(int(np.searchsorted(running, mass)), running.size - 1) + 1

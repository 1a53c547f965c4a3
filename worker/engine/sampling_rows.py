"""Rows of a step in the form in which compiled code samples them."""

import math
from collections.abc import Sequence as Rows

import numpy as np
from numpy.typing import NDArray

from worker.kernels.native import address_of
from worker.kernels.sample_task import ROW
from worker.models.logits import Logits

from .completion import TokenLogprobs
from .sequence import Sequence
from .token_counts import TokenCounts

_NONE = -1  # log-probabilities asked for


class SamplingRows:
    """Some logit rows of a step and what their sequences ask for; receives what is sampled.

    Filled a column at a time: NumPy takes as long to write one number as to write thirty.

    Attributes:
        words: structured array, see `sample_task`. Valid as long as the logits are, and while no
            sequence takes a token.
    """

    words: NDArray[np.void]

    def __init__(
        self, logits: Logits, indices: Rows[int], sequences: Rows[Sequence], vocab_size: int
    ) -> None:
        """Take the rows of these indices, which belong to these sequences."""
        assert logits.kept[indices].all(), f"of the rows {indices} some logits were not kept"
        assert logits.rows.strides[1] == 4, f"rows with strides {logits.rows.strides} have gaps"
        assert logits.rows.shape[1] >= vocab_size, (logits.rows.shape, vocab_size)
        self.words = np.zeros(len(indices), ROW)
        first = address_of(logits.rows[0, :vocab_size])
        self.words["logits"] = first + np.array(indices) * logits.rows.strides[0]
        self.words["token"] = logits.best_token[indices]
        self._fill_choice(sequences)
        self._fill_top([sequence.params.logprobs for sequence in sequences], vocab_size)
        penalised = [
            (place, sequence, sequence.token_counts)
            for place, sequence in enumerate(sequences)
            if sequence.token_counts is not None
        ]
        if penalised:
            self._fill_penalties(penalised)

    def _fill_choice(self, sequences: Rows[Sequence]) -> None:
        params = [sequence.params for sequence in sequences]
        self.words["temperature"] = [one.temperature for one in params]
        self.words["min_p"] = [one.min_p for one in params]
        self.words["top_k"] = [one.top_k for one in params]
        self.words["top_p"] = [one.top_p for one in params]
        self.words["position"] = [sequence.num_generated_tokens for sequence in sequences]
        self.words["key"] = np.array([sequence.draw_key for sequence in sequences], np.uint64)

    def _fill_penalties(self, rows: Rows[tuple[int, Sequence, TokenCounts]]) -> None:
        places = [place for place, _, _ in rows]
        counts = [one for _, _, one in rows]
        params = [sequence.params for _, sequence, _ in rows]
        self.words["seen"][places] = [len(one) for one in counts]
        self.words["seen_tokens"][places] = [one.addresses[0] for one in counts]
        self.words["generated"][places] = [one.addresses[1] for one in counts]
        self.words["repetition"][places] = [one.repetition_penalty for one in params]
        self.words["presence"][places] = [one.presence_penalty for one in params]
        self.words["frequency"][places] = [one.frequency_penalty for one in params]

    def _fill_top(self, asked: Rows[int | None], vocab_size: int) -> None:
        tops = [_NONE if top is None else min(top, vocab_size) for top in asked]
        shape = len(tops), max(0, *tops)
        self._top_tokens, self._top_logits = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        self.words["top"] = tops
        for name, array in (("top_tokens", self._top_tokens), ("top_logits", self._top_logits)):
            self.words[name] = address_of(array) + np.arange(shape[0]) * array.strides[0]

    def tokens(self) -> list[int]:
        """The tokens sampled; NO_TOKEN where penalties left no finite logit."""
        tokens: list[int] = self.words["token"].tolist()
        return tokens

    def logprobs(self) -> list[TokenLogprobs | None]:
        """Log-probabilities under the model itself, rounded to float32; None if not asked for."""
        tops = self.words["top"].tolist()
        if max(tops) == _NONE:
            return [None] * len(tops)
        total = [math.log(total or 1.0) for total in self.words["total"].tolist()]
        log_total = self.words["greatest"] + np.array(total)
        own = (self.words["logit"] - log_total).astype(np.float32).tolist()
        of_top = (self._top_logits - log_total[:, None]).astype(np.float32).tolist()
        return [
            None
            if top == _NONE
            else TokenLogprobs(token, logprob, tuple(zip(ids[:top], values[:top], strict=True)))
            for top, token, logprob, ids, values in zip(
                tops, self.tokens(), own, self._top_tokens.tolist(), of_top, strict=True
            )
        ]

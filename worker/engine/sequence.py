"""Sequence: one completion on its way through the engine."""

from collections.abc import Hashable
from dataclasses import dataclass

from kvpool import BlockTables
from worker.errors import RowError
from worker.tokenizer.detokenizer import Detokenizer

from .completion import Completion, FinishReason, TokenLogprobs
from .draws import DrawKey
from .request import RowId
from .sampling_params import SamplingParams
from .stop_matcher import StopMatcher
from .token_counts import TokenCounts


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a sequence ends: see Completion for the two values."""

    finish_reason: FinishReason
    stop_reason: str | int | None = None


class Sequence:
    """Tokens of one completion of a row: those of the prompt and those generated so far.

    ``num_computed_tokens`` catches up with ``num_tokens``: a long prompt in several chunks,
    afterwards one token a step. There is no other difference between prefill and decode::

        prompt tokens ......................... generated tokens
        |<---- num_computed_tokens ---->|<---- num_uncomputed_tokens ---->|

    It starts at what the prefix cache holds. Preemption sets it back to 0; the generated tokens
    stay.

    Attributes:
        row_id: of the request.
        completion_index: which of the row's ``n`` completions this is, from 0.
        forked_from: the row's first sequence, whose prompt this one shares; None for that itself.
        params: how to sample.
        prompt_token_ids: the prompt.
        token_ids: prompt and generated tokens.
        max_tokens: most tokens in all; at least one more than the prompt.
        is_long: whether the model rotates it as it does long sequences, see `Batch`.
        end_token_ids: tokens of the model that end the text.
        tables: its blocks.
        draw_key: key of its random draws.
        num_computed_tokens: tokens whose K/V are in the cache.
        num_known_tokens: most tokens ever computed; those below are recomputed.
        num_cached_tokens: prompt tokens whose K/V were found when it was first admitted.
        times_overtaken: sequences admitted before it that had come after it.
        logprobs: one entry a generated token; None when not asked for.
        token_counts: its tokens as penalties look at them; None without penalties.
        arrival_s: when it came, on the engine's clock.
        first_token_s: when its first token was sampled.
    """

    def __init__(
        self,
        *,
        row_id: RowId,
        params: SamplingParams,
        prompt_token_ids: tuple[int, ...],
        max_tokens: int,
        end_token_ids: frozenset[int],
        tables: BlockTables,
        draw_key: DrawKey,
        detokenizer: Detokenizer,
        arrival_s: float,
        is_long: bool = False,
        completion_index: int = 0,
        forked_from: "Sequence | None" = None,
    ) -> None:
        self.row_id = row_id
        self.completion_index = completion_index
        self.forked_from = forked_from
        self.is_long = is_long
        self.params = params
        self.prompt_token_ids = prompt_token_ids
        self.token_ids = list(prompt_token_ids)
        self.max_tokens = max_tokens
        self.end_token_ids = frozenset() if params.ignore_eos else end_token_ids
        self.tables = tables
        self.draw_key = draw_key
        self.num_computed_tokens = 0
        self.num_known_tokens = 0
        self.num_cached_tokens = 0
        self.times_overtaken = 0
        self.logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        self.token_counts = TokenCounts(prompt_token_ids) if params.has_penalties else None
        self.arrival_s = arrival_s
        self.first_token_s: float | None = None
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(params.stop)

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens."""
        return len(self.token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens whose K/V are still missing."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_generated_tokens(self) -> int:
        """Tokens generated so far, also the position of the next one in the completion."""
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def generated_token_ids(self) -> list[int]:
        """The tokens generated so far."""
        return self.token_ids[len(self.prompt_token_ids) :]

    @property
    def identity(self) -> Hashable:
        """What a greedy completion follows from, together with the model: equal ones are equal."""
        return self.prompt_token_ids, self.params

    @property
    def goes_first(self) -> bool:
        """Whether it waits in front of new rows: preempted, or its row is running already."""
        return self.num_known_tokens > 0 or self.forked_from is not None

    @property
    def will_fork(self) -> bool:
        """Whether other completions of the row are to share its prompt once that is computed."""
        return self.params.n > 1 and self.forked_from is None and self.num_generated_tokens == 0

    def computed(self, num_tokens: int) -> None:
        """The K/V of the next ``num_tokens`` tokens are in the cache."""
        self.num_computed_tokens += num_tokens
        self.num_known_tokens = max(self.num_known_tokens, self.num_computed_tokens)

    def append(self, token_id: int, logprobs: TokenLogprobs | None) -> Ending | None:
        """Take a sampled token; how the sequence ends with it, or None to go on.

        A token that ends the text is no part of it: neither of its tokens nor of its log-probs.
        """
        if token_id in self.end_token_ids:
            return self._end(Ending(FinishReason.STOP))
        if token_id in self.params.stop_token_ids:
            return self._end(Ending(FinishReason.STOP, token_id))
        self.token_ids.append(token_id)
        if self.token_counts is not None:
            self.token_counts.add(token_id)
        if self.logprobs is not None and logprobs is not None:
            self.logprobs.append(logprobs)
        match = self._matcher.push(self._detokenizer.push(token_id))
        if match is not None:
            return Ending(FinishReason.STOP, match)
        if self.num_tokens >= self.max_tokens:
            return self._end(Ending(FinishReason.LENGTH))
        return None

    def take_text(self) -> str:
        """The text that became certain since the last call."""
        return self._matcher.take()

    def completion(self, ending: Ending, now_s: float) -> Completion:
        """The answer."""
        return Completion(
            row_id=self.row_id,
            text=self._matcher.text,
            finish_reason=ending.finish_reason,
            stop_reason=ending.stop_reason,
            prompt_token_ids=self.prompt_token_ids,
            token_ids=tuple(self.generated_token_ids),
            num_cached_tokens=self.num_cached_tokens,
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            ttft_s=None if self.first_token_s is None else self.first_token_s - self.arrival_s,
            latency_s=now_s - self.arrival_s,
        )

    def failure(self, error: RowError, now_s: float) -> Completion:
        """The answer when the row cannot be completed."""
        return Completion(
            row_id=self.row_id,
            text=None,
            finish_reason=FinishReason.ERROR,
            prompt_token_ids=self.prompt_token_ids,
            error=str(error),
            error_kind=error.kind,
            latency_s=now_s - self.arrival_s,
        )

    def _end(self, ending: Ending) -> Ending:
        """Release the text held back; an incomplete character may still complete a stop string."""
        match = self._matcher.push(self._detokenizer.finish())
        if match is not None:
            return Ending(FinishReason.STOP, match)
        self._matcher.finish()
        return ending

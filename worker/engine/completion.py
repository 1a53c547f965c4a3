"""A completion: what the engine answers for one request."""

from dataclasses import dataclass
from enum import StrEnum

from worker.errors import ErrorKind

from .request import RowId


class FinishReason(StrEnum):
    """Why a completion ended; the values are those of the ``finish_reason`` column."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities at one generated position, before temperature, penalties and filters.

    Attributes:
        token_id: the sampled token.
        logprob: its natural-log probability.
        top: the K most likely (token id, logprob), most likely first, lowest id first in a tie.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The outcome of one request; a failed row is a Completion with ``error`` set.

    Attributes:
        row_id: that of the Request.
        text: the generated text, without the stop string; None for an error.
        finish_reason: stop (end token, stop token or stop string), length, error.
        stop_reason: the stop string or stop token id that ended it; None for the model's own
            end of text, for length and for errors.
        prompt_token_ids: the prompt as the model saw it; empty when tokenisation failed.
        token_ids: all generated tokens that count, the end-of-text token not among them.
        num_cached_tokens: prompt tokens taken from the prefix cache.
        logprobs: one entry a generated token when asked for.
        error: what was wrong with the row, the same in every run.
        error_kind: which kind of error that is; None without one.
        ttft_s: seconds from arrival in the engine to the first token; None without a token.
        latency_s: seconds from arrival in the engine to the end.
        others: the row's further completions, when ``n`` above 1 was asked for, in order.
    """

    row_id: RowId
    text: str | None
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    num_cached_tokens: int = 0
    logprobs: tuple[TokenLogprobs, ...] | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    ttft_s: float | None = None
    latency_s: float = 0.0
    others: tuple["Completion", ...] = ()

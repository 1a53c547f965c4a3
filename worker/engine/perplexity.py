"""Perplexity: how well a model predicts a text.

A text longer than the context is cut into windows that overlap by half. The first window scores
all its tokens, the others the second half of theirs, so that every token of the text is scored
once, with at least half a window before it (s: scored, c: context)::

    text      a b c d e f g h i j
    window 0  s s s s                  4 tokens a window, begin of text in front where
    window 1      c c s s              the model adds one; without, the text's first
    window 2          c c s s          token has nothing before it and is not scored
    window 3              c c s s
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from worker.errors import ModelError

from .token_logits import TokenLogits

DEFAULT_CONTEXT = 2048
"""Tokens of a window where nothing else is said, and the model's context is not shorter."""
MIN_CONTEXT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """What was found about a text.

    Attributes:
        num_tokens: tokens of the text, those that the model adds included.
        num_scored: tokens that were predicted from those before them.
        num_computed: tokens that went through the model, overlaps counted each time.
        num_windows: windows the text was cut into.
        mean_nll: mean of -ln p(token | tokens before it) over the scored tokens, in nats.
        seconds: time in the model and in the sums.
    """

    num_tokens: int
    num_scored: int
    num_computed: int
    num_windows: int
    mean_nll: float
    seconds: float

    @property
    def perplexity(self) -> float:
        """E to the mean; infinite where that is no float64."""
        return math.exp(self.mean_nll) if self.mean_nll < 709 else math.inf

    @property
    def tokens_per_second(self) -> float:
        """Tokens through the model a second."""
        return self.num_computed / self.seconds


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Tokens `start` to `end` of a text, those from `first_scored` on to be scored."""

    start: int
    first_scored: int
    end: int


def text_windows(num_tokens: int, size: int) -> Iterator[TextWindow]:
    """Cut a text into windows of at most `size` tokens, see the module."""
    start, scored = 0, 0
    while scored < num_tokens:
        end = min(start + size, num_tokens)
        yield TextWindow(start, scored, end)
        start, scored = start + size // 2, end


def measure_perplexity(
    logits: TokenLogits,
    token_ids: Sequence[int],
    bos_id: int | None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Perplexity:
    """Score a text.

    Args:
        logits: of the model, for windows of `max_tokens` tokens.
        token_ids: the text, at least two; begin of text first where the model adds one, which then
            stands in front of every window.
        bos_id: the model's begin of text.
        progress: called after each window with the windows done, all windows, and the mean so far.

    Raises:
        ModelError: a logit is not a finite number.
    """
    assert len(token_ids) >= 2, "nothing to predict"
    assert logits.max_tokens >= MIN_CONTEXT, logits.max_tokens
    prefix = token_ids[:1] if token_ids[0] == bos_id else ()
    text = token_ids[len(prefix) :]
    windows = list(text_windows(len(text), logits.max_tokens - len(prefix)))
    total, scored, computed, started = 0.0, 0, 0, perf_counter()
    for done, window in enumerate(windows, 1):
        ids = [*prefix, *text[window.start : window.end]]
        first = len(prefix) + window.first_scored - window.start
        losses = list(_losses(logits, ids, max(1, first)))
        total, scored = total + math.fsum(losses), scored + len(losses)
        computed += len(ids) - 1
        if progress is not None:
            progress(done, len(windows), total / scored)
    return Perplexity(
        num_tokens=len(token_ids),
        num_scored=scored,
        num_computed=computed,
        num_windows=len(windows),
        mean_nll=total / scored,
        seconds=perf_counter() - started,
    )


def _losses(logits: TokenLogits, ids: Sequence[int], first: int) -> Iterator[float]:
    """-ln p of each token from number `first` (at least 1) on, given those before it."""
    for at, rows in logits.of(ids[:-1], first - 1):
        for i, total in enumerate(log_sums(rows, at + 1)):
            yield total - float(rows[i, ids[at + 1 + i]])


def log_sums(logits: NDArray[np.float32], place: int) -> Iterator[float]:
    """Logarithm of the sum of e^logit over each row, in float64; ln p = logit - this.

    Args:
        logits: float32 [n, vocab_size].
        place: number of the token that the first row predicts, for messages.

    Raises:
        ModelError: a logit is NaN or infinite.
    """
    powers = np.empty(logits.shape[1])  # one for all rows: megabytes anew for each cost more
    for i, row in enumerate(logits, place):
        if not np.isfinite(row).all():
            raise ModelError(
                f"non-finite logits for token {i} of a window: the model computed NaN or "
                "infinity; check the model file"
            )
        largest = np.float64(row.max())
        np.subtract(row, largest, out=powers)
        np.exp(powers, out=powers)
        yield float(largest) + math.log(powers.sum())

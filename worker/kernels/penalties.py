"""Penalties on the logits of tokens that a row has already: applied in place, and taken back."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel


@kernel
def penalise(
    row: NDArray[np.float32],
    tokens: NDArray[np.int32],
    generated: NDArray[np.int32],
    repetition: np.float32,
    presence: np.float32,
    frequency: np.float32,
    before: NDArray[np.float32],
) -> None:
    """Penalise the logits of `tokens` in place; those that leave float32 become infinite.

    Args:
        row: float32 [n].
        tokens: int32 [m]: those in the prompt or the completion, each once.
        generated: int32 [m]: how often each is in the completion.
        repetition: divides positive, multiplies other logits (Keskar et al. 2019, with the sign
            mended for negative logits).
        presence: subtracted from the logits of tokens in the completion.
        frequency: subtracted from these as often as they are there.
        before: float32 [m or more], receives the logits as they were.
    """
    for i in range(tokens.size):
        logit = row[tokens[i]]
        before[i] = logit
        logit = logit / repetition if logit > 0 else logit * repetition
        if generated[i] > 0:
            logit -= presence
            logit -= frequency * np.float32(generated[i])
        row[tokens[i]] = logit


@kernel
def restore(
    row: NDArray[np.float32], tokens: NDArray[np.int32], before: NDArray[np.float32]
) -> None:
    """Put the logits of `tokens` back as they were before `penalise`."""
    for i in range(tokens.size):
        row[tokens[i]] = before[i]

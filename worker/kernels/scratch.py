"""The memory that a thread samples a row in."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUP = 64  # tokens whose largest logit is kept
BLOCK = 512  # tokens between two running sums that are kept
COUNTERS = 1024


class Scratch(NamedTuple):
    """Memory for a row of n logits. Pages that no row needs are never touched.

    Attributes:
        maxima: float32 [n / GROUP, rounded up]: the largest logit of each group.
        prefixes: float64 [n / BLOCK, rounded up]: sum of the weights up to the end of each block.
        candidates: int64 [n], see `selection`.
        spare: int64 [n].
        weights: float64 [n]: of the candidates.
        counters: int64 [COUNTERS].
        before: float32 [n]: logits before penalties.
    """

    maxima: NDArray[np.float32]
    prefixes: NDArray[np.float64]
    candidates: NDArray[np.int64]
    spare: NDArray[np.int64]
    weights: NDArray[np.float64]
    counters: NDArray[np.int64]
    before: NDArray[np.float32]


def make_scratch(vocab_size: int) -> Scratch:
    """Scratch for rows of that many logits."""
    return Scratch(
        maxima=np.empty(-(-vocab_size // GROUP), np.float32),
        prefixes=np.empty(-(-vocab_size // BLOCK), np.float64),
        candidates=np.empty(vocab_size, np.int64),
        spare=np.empty(vocab_size, np.int64),
        weights=np.empty(vocab_size, np.float64),
        counters=np.empty(COUNTERS, np.int64),
        before=np.empty(vocab_size, np.float32),
    )

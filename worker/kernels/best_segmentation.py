"""Unigram segmentation: the tokens whose scores add up to the most (Kudo 2018, by Viterbi)."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel
from .token_table import ABSENT, find, hash_prefixes


@kernel
def encode_best(
    text: NDArray[np.uint32],
    slots: NDArray[np.int32],
    texts: NDArray[np.uint32],
    powers: NDArray[np.uint64],
    scores: NDArray[np.float64],
    unknown: int,
    unknown_score: float,
    ids: NDArray[np.int64],
) -> int:
    """Encode a text; unknown characters that follow each other are one unknown token.

    Args:
        text: uint32 [n]: code points.
        slots: of tokens and their prefixes, see ``token_table.find``.
        texts: of the same.
        powers: of the same.
        scores: float64 [vocab_size].
        unknown: the token of a character that is none.
        unknown_score: its score.
        ids: int64 [n]: receives the tokens.

    Returns:
        How many tokens there are.
    """
    size = text.size
    hashes = np.empty(size + 1, np.uint64)
    hash_prefixes(text, hashes)
    best = np.full(size + 1, -np.inf)
    token_at = np.empty(size + 1, np.int64)
    start_of = np.empty(size + 1, np.int64)
    best[0] = 0.0
    for start in range(size):
        known = False
        for end in range(start + 1, min(size, start + powers.size - 1) + 1):
            token = find(text, hashes, start, end, slots, texts, powers)
            if token == ABSENT:
                break
            if token >= 0:
                known = known or end == start + 1
                score = best[start] + scores[token]
                if score > best[end]:
                    best[end], token_at[end], start_of[end] = score, token, start
        if not known and best[start] + unknown_score > best[start + 1]:
            best[start + 1] = best[start] + unknown_score
            token_at[start + 1], start_of[start + 1] = unknown, start
    return _read_back(size, token_at, start_of, unknown, ids)


@kernel
def _read_back(
    end: int,
    token_at: NDArray[np.int64],
    start_of: NDArray[np.int64],
    unknown: int,
    ids: NDArray[np.int64],
) -> int:
    """Write the tokens from the last to the first, then turn them round."""
    count = 0
    while end > 0:
        token = token_at[end]
        if token != unknown or count == 0 or ids[count - 1] != unknown:
            ids[count] = token
            count += 1
        end = start_of[end]
    for i in range(count // 2):
        ids[i], ids[count - 1 - i] = ids[count - 1 - i], ids[i]
    return count

"""The best token folded tile by tile, against NumPy over whole rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.kernels.argmax_task import (
    BEST_BYTES,
    TILE,
    argmax_task,
    clear_best,
    reduce_bests,
    tile_best,
)
from worker.kernels.native import address_of

from .test_argmax import naive


def folded(logits, parts, *, padding=np.nan):
    """The bests [parts, R] of logits [R, vocab] that a head of so many items would leave."""
    rows, vocab = logits.shape
    tiles = -(-vocab // TILE)
    padded = np.full((rows, tiles * TILE), padding, np.float32)
    padded[:, :vocab] = logits
    bests = np.zeros((parts, rows), [("value", "f4"), ("token", "i4"), ("bad", "i4"), ("_", "i4")])
    assert bests.itemsize == BEST_BYTES
    for part in range(parts):
        for row in range(rows):
            best = address_of(bests) + (part * rows + row) * BEST_BYTES
            clear_best(best)
            for first in range(
                TILE * (tiles * part // parts), TILE * (tiles * (part + 1) // parts), TILE
            ):
                values = address_of(padded) + 4 * (row * tiles * TILE + first)
                tile_best(values, first, min(TILE, vocab - first), best)
    return bests


def reduced(bests):
    """Tokens and values that the task writes."""
    parts, rows = bests.shape
    tokens, values = np.full(rows, -2, np.int32), np.zeros(rows, np.float32)
    arguments = [bests, parts, rows * BEST_BYTES, tokens, values]
    words = np.array([a if isinstance(a, int) else address_of(a) for a in arguments], np.int64)
    for row in range(rows):
        argmax_task(0, address_of(words), row, 0)
    return list(zip(tokens.tolist(), values.tolist(), strict=True))


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 5),
    st.integers(1, 6),
    st.sampled_from([1, 3, 10**6]),
    st.integers(0, 2**32),
)
def test_folded_and_reduced_equals_the_naive_one(vocab, rows, parts, different, seed):
    """Any vocabulary, rows and items; ties within a tile, between tiles and between items."""
    integers = np.random.default_rng(seed).integers(-different, different, (rows, vocab))
    logits = integers.astype(np.float32)
    assert [naive(row) for row in logits] == reduced(folded(logits, parts))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 16, 31, 47, 48, 52])
def test_a_bad_logit_leaves_its_row_without_a_token(bad, place):
    """In any tile, whole or not, before or after a larger one; the other rows keep theirs."""
    logits = np.zeros((3, 53), np.float32)
    logits[:, 20] = 5.0
    logits[1, place] = bad
    assert [20, -1, 20] == [token for token, _ in reduced(folded(logits, 2))]


@pytest.mark.parametrize("padding", [np.nan, np.inf, 1e30])
def test_values_past_the_last_token_count_for_nothing(padding):
    """A tile may be half full."""
    logits = np.full((1, 21), -7.0, np.float32)
    assert [(0, -7.0)] == reduced(folded(logits, 1, padding=padding))


def test_the_ends_of_float32_are_sound():
    """The largest numbers, and two zeros that are equal."""
    largest = np.finfo(np.float32).max
    logits = np.full((2, 40), -largest, np.float32)
    logits[0, [33, 35]] = largest
    logits[1, 17], logits[1, 18] = -0.0, 0.0
    assert [(33, float(largest)), (17, -0.0)] == reduced(folded(logits, 3))


def test_no_part_is_no_token():
    """Nothing is read."""
    token, value = reduce_bests(0, 0, 0)
    assert (token, value) == (-1, -np.inf)

"""Sampling as tasks: an item is a row whose token or log-probabilities ask for its logits.

A row is ROW_WORDS words of 64 bits that say how it is sampled and receive what came of it.
"""

import numpy as np

from .jit import kernel
from .native import float32s, float64s, int32s, int64s, task, word
from .penalties import penalise, restore
from .philox import uniform
from .sampling import NO_TOKEN, choose, likeliest
from .scratch import BLOCK, COUNTERS, GROUP, Scratch

# Words of a row, and their types.
(
    LOGITS,
    TOKEN,
    TEMPERATURE,
    MIN_P,
    TOP_K,
    TOP_P,
    POSITION,
    KEY,
    KEY_HIGH,
    SEEN,
    SEEN_TOKENS,
    GENERATED,
    REPETITION,
    PRESENCE,
    FREQUENCY,
    TOP,
    TOP_TOKENS,
    TOP_LOGITS,
    LOGIT,
    GREATEST,
    TOTAL,
) = range(21)
ROW_WORDS = 21
ROW = np.dtype(
    [
        ("logits", np.int64),  # address of the logits, which are finite
        ("token", np.int64),  # the best token; receives the one chosen, or NO_TOKEN
        ("temperature", np.float64),
        ("min_p", np.float64),
        ("top_k", np.int64),
        ("top_p", np.float64),
        ("position", np.uint64),  # counter and key of the draw, see `philox`
        ("key", np.uint64, 2),
        ("seen", np.int64),  # tokens to penalise, 0 for none; addresses of them and their counts
        ("seen_tokens", np.int64),
        ("generated", np.int64),
        ("repetition", np.float64),
        ("presence", np.float64),
        ("frequency", np.float64),
        ("top", np.int64),  # how many of the likeliest tokens to find; -1: no log-probabilities
        ("top_tokens", np.int64),  # addresses of int64 and float32 [top] that receive them
        ("top_logits", np.int64),
        ("logit", np.float64),  # receives the logit of the token, before penalties
        ("greatest", np.float64),  # and these what log-probabilities are made of: see `likeliest`
        ("total", np.float64),
    ]
)

assert ROW.itemsize == 8 * ROW_WORDS

# The words of the header, and the arguments, in this order.
ITEMS, ROWS = range(2)
VOCABULARY, SCRATCH = range(2)
SCRATCH_WORDS = len(Scratch._fields)


@task
def choose_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Choose the token of a row that has a temperature or penalties.

    Header: number of rows; address of the rows. Arguments: logits of a row; address of the
    addresses of each thread's scratch [threads][SCRATCH_WORDS].
    """
    row = word(header, ROWS) + 8 * ROW_WORDS * item
    reals, words = float64s(row, ROW_WORDS), int64s(row, ROW_WORDS)
    temperature, seen = reals[TEMPERATURE], words[SEEN]
    if temperature == 0 and seen == 0:
        return
    scratch = _scratch(arguments, thread)
    logits = float32s(words[LOGITS], word(arguments, VOCABULARY))
    tokens, generated = int32s(words[SEEN_TOKENS], seen), int32s(words[GENERATED], seen)
    repetition, presence = np.float32(reals[REPETITION]), np.float32(reals[PRESENCE])
    frequency = np.float32(reals[FREQUENCY])
    key = np.uint64(words[KEY]), np.uint64(words[KEY_HIGH])
    draw = uniform(np.uint64(words[POSITION]), key[0], key[1])
    penalise(logits, tokens, generated, repetition, presence, frequency, scratch.before)
    filters = temperature, reals[MIN_P], words[TOP_K], reals[TOP_P]
    words[TOKEN] = choose(logits, filters[0], filters[1], filters[2], filters[3], draw, scratch)
    restore(logits, tokens, scratch.before)


@task
def likeliest_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Find what a row's log-probabilities are made of, if it asks for them and has a token.

    Header and arguments: see `choose_task`.
    """
    row = word(header, ROWS) + 8 * ROW_WORDS * item
    reals, words = float64s(row, ROW_WORDS), int64s(row, ROW_WORDS)
    top = words[TOP]
    if top < 0 or words[TOKEN] == NO_TOKEN:
        return
    scratch = _scratch(arguments, thread)
    logits = float32s(words[LOGITS], word(arguments, VOCABULARY))
    reals[LOGIT] = logits[words[TOKEN]]
    reals[GREATEST], reals[TOTAL] = likeliest(logits, top, scratch)
    top_tokens, top_logits = int64s(words[TOP_TOKENS], top), float32s(words[TOP_LOGITS], top)
    for i in range(top):
        top_tokens[i] = scratch.candidates[i]
        top_logits[i] = logits[top_tokens[i]]


@kernel
def _scratch(arguments: int, thread: int) -> Scratch:
    """A thread's scratch by its addresses."""
    vocabulary = word(arguments, VOCABULARY)
    addresses = word(arguments, SCRATCH) + 8 * SCRATCH_WORDS * thread
    return Scratch(
        float32s(word(addresses, 0), -(-vocabulary // GROUP)),
        float64s(word(addresses, 1), -(-vocabulary // BLOCK)),
        int64s(word(addresses, 2), vocabulary),
        int64s(word(addresses, 3), vocabulary),
        float64s(word(addresses, 4), vocabulary),
        int64s(word(addresses, 5), COUNTERS),
        float32s(word(addresses, 6), vocabulary),
    )

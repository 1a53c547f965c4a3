"""How a thread team enters and leaves a program without returning to Python.

The team's words lie in memory that all threads share. The caller's thread counts a region up; the
helpers, which wait for that in compiled code and without the GIL, follow it through a program, say
that they are done, and wait again. Only a job in Python brings them back there.
"""

from .jit import kernel
from .memory import load_acquire, store_release
from .native import word
from .operations import run_operations, shared_words
from .spin import wait_for_change

# The team's words: the region, then the program that all threads go through in it (an address of
# 0: the region is a job in Python). Helper i's word, the last region that it finished, is number
# i * WORDS_A_THREAD: no two threads write to the same cache line. Behind them are the words that
# `run_operations` shares: a helper may still look at those of its last barrier when the caller has
# gone on and the program is no more.
REGION, OPERATIONS, COUNT, HEADER, CLOCK, TIMES = range(6)
WORDS_A_THREAD = 16


def team_words(threads: int) -> int:
    """Words of a team, all 0 at first."""
    return WORDS_A_THREAD * threads + shared_words(threads)


@kernel
def announce(words: int) -> None:
    """Begin a region: what was written before is seen by the helpers."""
    store_release(words, REGION, load_acquire(words, REGION) + 1)


@kernel
def take_part(words: int, thread: int, threads: int) -> None:
    """Take a thread through the program of the region."""
    run_operations(
        word(words, OPERATIONS),
        word(words, COUNT),
        word(words, HEADER),
        words + 8 * WORDS_A_THREAD * threads,
        thread,
        threads,
        word(words, CLOCK),
        word(words, TIMES),
    )


@kernel
def lead(words: int, threads: int) -> None:
    """Begin a region and take the caller's thread through its program."""
    announce(words)
    take_part(words, 0, threads)


@kernel
def follow(words: int, helper: int, threads: int, pauses: int, yields: int) -> bool:
    """Follow the team through programs; True when a job in Python has begun, False when nothing.

    Args:
        words: address of the team's words.
        helper: index of this thread.
        threads: threads in the team.
        pauses: how long to wait for a region, see `wait_for_change`.
        yields: the same.
    """
    own = WORDS_A_THREAD * helper
    while wait_for_change(words, REGION, load_acquire(words, own), pauses, yields):
        if word(words, OPERATIONS) == 0:
            return True
        region = load_acquire(words, REGION)
        take_part(words, helper, threads)
        store_release(words, own, region)
    return False

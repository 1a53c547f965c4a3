"""Sizing: budgets to blocks, checked against the machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpool import KVPool, LayerGroup, PoolLimits, PoolSizeError
from kvpool.sizing import (
    DEFAULT_POOL_BYTES,
    blocks_from_bytes,
    blocks_from_tokens,
    check_memory,
    default_blocks,
    pool_bytes,
)

FULL = LayerGroup("full", (0, 1), num_kv_heads=1, head_dim=4, window=None)
WINDOW = LayerGroup("window", (2, 3, 4), num_kv_heads=2, head_dim=4, window=5)
LIMITS = PoolLimits(block_size=4, max_num_seqs=2, max_num_batched_tokens=8, max_model_len=1000)

limits = st.builds(
    PoolLimits,
    block_size=st.integers(1, 32),
    max_num_seqs=st.integers(1, 8),
    max_num_batched_tokens=st.integers(8, 64),
    max_model_len=st.integers(1, 2000),
)


def test_tokens_become_blocks_of_each_group():
    """A full group gets blocks for all tokens, a window group what it can use."""
    # window 5: 1 + 1 blocks a sequence; 8 // 4 + 2 for the chunks
    assert blocks_from_tokens((FULL, WINDOW), 400, LIMITS) == (100, 8)


def test_tokens_are_rounded_up_to_whole_blocks():
    """The pool holds at least the tokens asked for."""
    assert blocks_from_tokens((FULL,), 65, LIMITS) == (17,)


def test_window_group_is_never_larger_than_the_full_one():
    """In a small pool a window group holds as many tokens as the others."""
    assert blocks_from_tokens((FULL, WINDOW), 12, LIMITS) == (3, 3)


@given(
    limits=limits,
    window=st.integers(1, 300),
    wide=st.integers(1, 20),
    budget=st.integers(1, 10_000_000),
)
def test_bytes_give_the_largest_pool_within_the_budget(limits, window, wide, budget):
    """The pool stays within its bytes, and one block more for each group would not."""
    groups = (FULL, LayerGroup("w", tuple(range(2, 2 + wide)), 2, 4, window))
    try:
        blocks = blocks_from_bytes(groups, budget, limits)
    except PoolSizeError:
        assert pool_bytes(groups, (1, 1), limits) > budget
        return
    assert pool_bytes(groups, blocks, limits) <= budget
    more = [n + 1 for n in blocks]
    assert pool_bytes(groups, more, limits) > budget
    assert blocks[1] <= limits.window_blocks(window)


@given(
    limits=limits,
    other=limits,
    window=st.integers(1, 300),
    wide=st.integers(1, 20),
    tokens=st.integers(1, 3000),
    budget=st.integers(1 << 16, 10_000_000),
)
def test_batch_settings_do_not_change_the_longest_sequence(
    limits, other, window, wide, tokens, budget
):
    """Sequences and tokens a step share the pool out; what fits follows from its size alone."""
    groups = (FULL, LayerGroup("w", tuple(range(2, 2 + wide)), 2, 4, window))
    other = replace(other, block_size=limits.block_size, max_model_len=limits.max_model_len)
    for blocks, size in (
        (blocks_from_tokens, tokens),
        (blocks_from_bytes, budget),
        (lambda groups, _, limits: default_blocks(groups, limits), None),
    ):
        longest, others = (
            KVPool(groups, blocks(groups, size, each), each).max_sequence_tokens
            for each in (limits, other)
        )
        assert longest == others


GEMMA = (
    LayerGroup("full", tuple(range(3)), num_kv_heads=1, head_dim=256, window=None),
    LayerGroup("window-512", tuple(range(3, 18)), num_kv_heads=1, head_dim=256, window=512),
)


@pytest.mark.parametrize(("sequences", "tokens"), [(1, 1), (32, 512), (64, 512), (256, 8192)])
def test_default_pool_of_gemma_3_holds_its_whole_context(sequences, tokens):
    """The full group is served first: 32,768 tokens fit however many rows share the pool."""
    limits = PoolLimits(
        block_size=16,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        max_model_len=32768,
    )
    blocks = default_blocks(GEMMA, limits)
    assert pool_bytes(GEMMA, blocks, limits) <= DEFAULT_POOL_BYTES
    assert KVPool(GEMMA, blocks, limits).max_sequence_tokens == 32768
    few = blocks_from_tokens(GEMMA, 4300, limits)
    assert KVPool(GEMMA, few, limits).max_sequence_tokens == 4304


def test_one_row_is_served_before_the_rest_is_shared():
    """Its blocks in the full group, its window, then all groups alike."""
    limits = replace(LIMITS, max_model_len=40)
    row = pool_bytes((FULL, WINDOW), (10, 2), limits)
    window = limits.block_bytes(WINDOW)
    assert blocks_from_bytes((FULL, WINDOW), row, limits) == (10, 2)
    assert blocks_from_bytes((FULL, WINDOW), row + window, limits) == (10, 3)
    assert blocks_from_bytes((FULL, WINDOW), row - window, limits) == (7, 2)


def test_window_only_model_takes_no_more_than_it_can_use():
    """A budget beyond all use is not spent where every layer has a window."""
    assert blocks_from_bytes((WINDOW,), 1 << 40, LIMITS) == (8,)


def test_budget_below_one_block_names_sizes_and_setting():
    """The error says how much a block takes."""
    with pytest.raises(PoolSizeError, match=r"kv_pool_bytes: 100 bytes .* takes 1024 bytes"):
        blocks_from_bytes((FULL, WINDOW), 100, LIMITS)


def test_default_is_what_can_be_used():
    """A tiny model's default pool is what its longest sequences need."""
    assert default_blocks((FULL,), LIMITS) == (2 * 250,)


def test_default_stays_within_a_gibibyte():
    """A large model's default pool is bounded, whatever its context."""
    big = LayerGroup("full", tuple(range(32)), num_kv_heads=8, head_dim=128, window=None)
    limits = PoolLimits(
        block_size=16, max_num_seqs=32, max_num_batched_tokens=512, max_model_len=131072
    )
    (blocks,) = default_blocks((big,), limits)
    assert DEFAULT_POOL_BYTES - limits.block_bytes(big) < blocks * limits.block_bytes(big)
    assert blocks * limits.block_bytes(big) <= DEFAULT_POOL_BYTES


@pytest.mark.parametrize("budget", [10_000, 1_000_000])
def test_float16_holds_twice_as_much(budget):
    """As many blocks from half the bytes; the size of the pool counts the bytes of a number."""
    half = replace(LIMITS, itemsize=2)
    blocks = blocks_from_bytes((FULL, WINDOW), budget, LIMITS)
    assert blocks == blocks_from_bytes((FULL, WINDOW), budget // 2, half)
    assert pool_bytes((FULL, WINDOW), blocks, LIMITS) == 2 * pool_bytes(
        (FULL, WINDOW), blocks, half
    )


def test_too_little_memory_names_both_sizes_and_the_setting():
    """A pool beyond the machine's memory is refused before anything is reserved."""
    with pytest.raises(
        PoolSizeError, match=r"kv_pool_bytes: .* needs 5000 bytes, .* has 4999 bytes .*lower kv_"
    ):
        check_memory(5000, "kv_pool_bytes", available=4999)
    check_memory(5000, "kv_pool_bytes", available=5000)


def test_absurd_pool_is_refused_on_this_machine():
    """Without a given figure the machine itself is asked."""
    with pytest.raises(PoolSizeError):
        check_memory(1 << 60, "kv_pool_tokens")


@pytest.mark.parametrize(
    ("window", "blocks", "tokens"),
    [(None, 10, 40), (None, 10_000, 1000), (5, 1, 4), (5, 2, 1000), (6, 2, 8), (6, 3, 1000)],
)
def test_longest_sequence(window, blocks, tokens):
    """A full group bounds a sequence by its blocks, a large enough window group does not."""
    assert LIMITS.longest_sequence(window, blocks) == tokens

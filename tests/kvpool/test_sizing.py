"""Sizing: budgets to blocks, checked against the machine."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpool import KVPool, LayerGroup, PoolLimits, PoolSizeError
from kvpool.sizing import (
    DEFAULT_POOL_BYTES,
    blocks_from_bytes,
    blocks_from_share,
    blocks_from_tokens,
    check_memory,
    most_tokens,
    one_row_blocks,
    pool_bytes,
    useful_blocks,
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
        (lambda groups, _, limits: useful_blocks(groups, limits), None),
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
    blocks = useful_blocks(GEMMA, limits)
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
    assert useful_blocks((FULL,), LIMITS) == (2 * 250,)


def test_default_stays_within_a_gibibyte():
    """A large model's default pool is bounded, whatever its context."""
    big = LayerGroup("full", tuple(range(32)), num_kv_heads=8, head_dim=128, window=None)
    limits = PoolLimits(
        block_size=16, max_num_seqs=32, max_num_batched_tokens=512, max_model_len=131072
    )
    (blocks,) = useful_blocks((big,), limits)
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


def test_too_little_memory_names_both_sizes_the_setting_and_what_fits():
    """A pool beyond the machine's memory is refused before anything is reserved."""
    with pytest.raises(PoolSizeError) as refusal:
        check_memory(5000, "kv_pool_bytes", int, available=4999)
    assert str(refusal.value) == (
        "kv_pool_bytes: the KV pool needs 5000 bytes, this machine has 4999 bytes available; "
        "lower kv_pool_bytes to at most 4999 or free memory"
    )
    check_memory(5000, "kv_pool_bytes", int, available=5000)


def test_absurd_pool_is_refused_on_this_machine():
    """Without a given figure the machine itself is asked."""
    with pytest.raises(PoolSizeError, match="at most"):
        check_memory(1 << 60, "kv_pool_bytes", int)


@given(limits=limits, window=st.integers(1, 300), budget=st.integers(0, 10_000_000))
def test_most_tokens_fit_and_a_block_more_does_not(limits, window, budget):
    """The size that an error names is the largest that would have been taken."""
    groups = (FULL, replace(WINDOW, window=window))
    tokens = most_tokens(groups, budget, limits)
    assert tokens % limits.block_size == 0
    if tokens:
        assert pool_bytes(groups, blocks_from_tokens(groups, tokens, limits), limits) <= budget
    more = blocks_from_tokens(groups, tokens + 1, limits)
    assert pool_bytes(groups, more, limits) > budget


def test_share_of_free_memory():
    """As large as the share, never larger than useful, never smaller than a row of full length."""
    groups = (FULL, WINDOW)
    row = pool_bytes(groups, one_row_blocks(groups, LIMITS), LIMITS)
    assert blocks_from_share(groups, 0.5, LIMITS, available=2 * row) == (250, 2)
    blocks = blocks_from_share(groups, 0.5, LIMITS, available=3 * row)
    assert row < pool_bytes(groups, blocks, LIMITS) <= 1.5 * row
    assert blocks_from_share(groups, 1, LIMITS, available=1 << 60) == useful_blocks(groups, LIMITS)
    with pytest.raises(PoolSizeError) as refusal:
        blocks_from_share(groups, 0.25, LIMITS, available=4 * row - 4)
    assert str(refusal.value) == (
        f"kv_pool_share: 0.25 of the {4 * row - 4} bytes available are {row - 1}, and a row of "
        f"max_model_len 1000 tokens takes {row}; lower max_model_len, raise kv_pool_share or free "
        "memory"
    )


def test_gemma_3_keeps_only_the_window_of_its_sliding_layers():
    """4,000 tokens of one row on Gemma 3 270M: 15 of 18 layers hold 512 of them."""
    limits = PoolLimits(
        block_size=16, max_num_seqs=1, max_num_batched_tokens=16, max_model_len=4000, itemsize=2
    )
    blocks = one_row_blocks(GEMMA, limits)
    assert blocks == (250, 33)
    assert pool_bytes(GEMMA, blocks, limits) == (3 * 250 + 15 * 33) * 16 * 1024
    assert pool_bytes(GEMMA, (250, 250), limits) / pool_bytes(GEMMA, blocks, limits) > 3.6


@pytest.mark.parametrize(
    ("window", "blocks", "tokens"),
    [(None, 10, 40), (None, 10_000, 1000), (5, 1, 4), (5, 2, 1000), (6, 2, 8), (6, 3, 1000)],
)
def test_longest_sequence(window, blocks, tokens):
    """A full group bounds a sequence by its blocks, a large enough window group does not."""
    assert LIMITS.longest_sequence(window, blocks) == tokens

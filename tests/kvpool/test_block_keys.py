"""BlockKeys: the chain over token ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvpool import BlockKeys

tokens = st.lists(st.integers(0, 3), min_size=8, max_size=24)


@given(first=tokens, second=tokens)
def test_keys_are_equal_exactly_where_histories_are(first, second):
    """Key j says: the same tokens up to the end of block j."""
    keys = BlockKeys(4).first(first, len(first) // 4), BlockKeys(4).first(second, len(second) // 4)
    for j, (a, b) in enumerate(zip(*keys, strict=False)):
        assert (a == b) is (first[: 4 * j + 4] == second[: 4 * j + 4])


def test_same_tokens_after_another_history_have_another_key():
    """The digest chains, the tokens do not."""
    (_, a), (_, b) = (BlockKeys(2).first([x, x, 5, 6], 2) for x in (1, 2))
    assert a.tokens == b.tokens
    assert a.digest != b.digest


@given(ids=tokens, cuts=st.lists(st.integers(0, 6), max_size=5))
def test_keys_do_not_depend_on_how_they_were_asked_for(ids, cuts):
    """A sequence grows; its keys are those of the whole."""
    grown, whole = BlockKeys(4), BlockKeys(4).first(ids, len(ids) // 4)
    for count in [min(cut, len(ids) // 4) for cut in cuts]:
        assert grown.first(ids[: 4 * count + 1], count) == whole[:count]
    assert grown.first(ids, len(ids) // 4) == whole


def test_fork_goes_its_own_way():
    """A fork knows the shared keys, and what one appends the other does not see."""
    parent = BlockKeys(2)
    parent.first([1, 2, 3, 4, 5, 6], 3)
    fork = parent.fork(2)
    assert fork.first([1, 2, 3, 4, 7, 8], 3)[:2] == parent.first((), 2)
    assert fork.first((), 3)[2] == BlockKeys(2).first([1, 2, 3, 4, 7, 8], 3)[2]
    assert parent.first((), 3)[2] == BlockKeys(2).first([1, 2, 3, 4, 5, 6], 3)[2]


def test_too_few_tokens_are_our_bug():
    """A key of a block that is not full would be a lie."""
    with pytest.raises(AssertionError, match="full blocks"):
        BlockKeys(4).first([1, 2, 3, 4, 5, 6, 7], 2)


def test_chains_of_different_roots_have_no_key_in_common():
    """Equal tokens, but keys and values that depend on something else as well; forks keep it."""
    one, other = BlockKeys(4), BlockKeys(4, b"long")
    ids = list(range(12))
    assert not set(one.first(ids, 3)) & set(other.first(ids, 3))
    assert BlockKeys(4, b"long").fork(0).first(ids, 3) == other.first(ids, 3)

"""Counts of a sequence's tokens as they grow."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from worker.engine.token_counts import TokenCounts

tokens = st.lists(st.integers(0, 300), max_size=400)


@given(tokens, tokens)
def test_counts_equal_counting_all_again(prompt, generated):
    """Each token once; how often it was generated, the prompt not counted."""
    counts = TokenCounts(prompt)
    for token in generated:
        counts.add(token)
    assert list(dict.fromkeys([*prompt, *generated])) == counts.tokens.tolist()
    expected = [Counter(generated)[token] for token in counts.tokens.tolist()]
    assert expected == counts.generated.tolist()

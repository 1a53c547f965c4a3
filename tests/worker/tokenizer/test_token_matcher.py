"""Finding tokens in text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from worker.tokenizer.token_matcher import TokenMatcher

TOKENS = st.lists(st.text("ab<", min_size=1, max_size=4), unique=True, max_size=8)


def naive_split(text, tokens):
    """Leftmost, longest: a regular expression with the longest alternative first."""
    if not tokens:
        return [text] if text else []
    longest_first = "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))
    parts = re.split(f"({longest_first})", text)
    return [tokens.index(p) if i % 2 else p for i, p in enumerate(parts) if p]


@given(TOKENS, st.text("ab< ", max_size=30))
def test_split_like_a_regular_expression(tokens, text):
    """Text is cut at the leftmost match, the longest one at its place."""
    matcher = TokenMatcher({token: place for place, token in enumerate(tokens)})
    assert naive_split(text, tokens) == list(matcher.split(text))


@given(TOKENS, st.text("ab< ", max_size=30))
def test_positions_are_all_places_where_a_token_starts(tokens, text):
    """Overlapping tokens are found too."""
    matcher = TokenMatcher(dict.fromkeys(tokens, 0))
    expected = [i for i in range(len(text)) if any(text.startswith(t, i) for t in tokens)]
    assert expected == list(matcher.positions(text))

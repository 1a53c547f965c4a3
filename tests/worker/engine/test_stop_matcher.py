"""StopMatcher: the earliest match, across pieces, and what is held back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.stop_matcher import StopMatcher


def _run(stop, pieces):
    """(text, match, pieces pushed) as the engine uses the matcher."""
    matcher = StopMatcher(stop)
    for n, piece in enumerate(pieces, 1):
        match = matcher.push(piece)
        if match is not None:
            return matcher.text, match, n
    matcher.finish()
    return matcher.text, None, len(pieces)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (["efg"], ("abcd", "efg", 7)),
        (["cde", "de"], ("ab", "cde", 5)),
        (["ef", "e"], ("abcd", "e", 5)),
        (["xyz", "k"], ("abcdefghij", "k", 11)),
        (["a"], ("", "a", 1)),
        (["abcdefghijk"], ("", "abcdefghijk", 11)),
        (["bc", "hij"], ("a", "bc", 3)),
        (["d", "cd"], ("ab", "cd", 4)),
        (["kx"], ("abcdefghijk", None, 11)),
        ([], ("abcdefghijk", None, 11)),
    ],
)
def test_text_ends_before_the_earliest_match(stop, expected):
    """A letter a piece: text, string and the number of pieces until the match is known."""
    assert _run(stop, "abcdefghijk") == expected


def test_matches_within_one_piece_count_by_place():
    """In one piece with two stop strings the earlier one ends the text."""
    assert _run(["de", "bc"], ["abcdef"]) == ("a", "bc", 1)


def test_beginning_of_a_stop_string_is_held_back():
    """Streamed text never has to be taken back."""
    matcher = StopMatcher(["efg"])
    taken = []
    for piece in ["d", "e", "f", "e", "f", "x"]:
        matcher.push(piece)
        taken.append(matcher.take())
    assert taken == ["d", "", "", "ef", "", "efx"]


def test_held_back_text_comes_at_the_end():
    """Without a match all text comes out."""
    matcher = StopMatcher(["efg"])
    matcher.push("abef")
    assert matcher.take() == "ab"
    matcher.finish()
    assert (matcher.take(), matcher.text) == ("ef", "abef")


def _naive(stop, pieces):
    text = ""
    for n, piece in enumerate(pieces, 1):
        text += piece
        found = [(text.find(s), i) for i, s in enumerate(stop) if s in text]
        if found:
            start, i = min(found)
            return text[:start], stop[i], n
    return text, None, len(pieces)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("ab", max_size=3), max_size=12),
)
def test_equals_searching_the_whole_text_each_time(stop, pieces):
    """The matcher gives what a search through all text after every piece gives."""
    assert _run(stop, pieces) == _naive(stop, pieces)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.text("ab", max_size=20))
def test_streamed_pieces_make_up_the_text(stop, text):
    """What was taken piece by piece is the text, whatever was held back meanwhile."""
    matcher = StopMatcher(stop)
    taken = ""
    for letter in text:
        match = matcher.push(letter)
        taken += matcher.take()
        if match is not None:
            break
    else:
        matcher.finish()
        taken += matcher.take()
    assert taken == matcher.text

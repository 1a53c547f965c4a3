"""Incremental decoding."""

from hypothesis import given
from hypothesis import strategies as st

from worker.tokenizer.detokenizer import Detokenizer

# Random bytes are rarely long sequences; pieces of real UTF-8 are.
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from([b"\xf0", b"\x9f", b"\x98", b"\x80", b"\xe2\x82", b"\xed\xa0", b"a"]),
    ),
    max_size=12,
)


@given(PIECES)
def test_pushes_and_finish_are_the_whole_decoded(pieces):
    """However bytes are cut into tokens, the text is that of all bytes decoded at once."""
    detokenizer = Detokenizer(pieces.__getitem__)
    pushed = "".join(detokenizer.push(place) for place in range(len(pieces)))
    assert b"".join(pieces).decode("utf-8", "replace") == pushed + detokenizer.finish()


def test_a_character_is_held_back_until_complete():
    """Nothing of a character is shown before its last byte."""
    detokenizer = Detokenizer([b"x\xe2", b"\x82", b"\xac!"].__getitem__)
    assert ["x", "", "\u20ac!"] == [detokenizer.push(place) for place in range(3)]


def test_an_unfinished_character_ends_as_a_replacement():
    """Bytes of a character that never ended become one U+FFFD."""
    detokenizer = Detokenizer([b"\xf0\x9f\x98"].__getitem__)
    assert ("", "\ufffd") == (detokenizer.push(0), detokenizer.finish())

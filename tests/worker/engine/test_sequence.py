"""Sequence: how each token is taken, and how a text ends."""

import pytest

from worker.engine.completion import FinishReason, TokenLogprobs
from worker.engine.sequence import Ending
from worker.errors import ErrorKind, TooLongError

from .sequences import make_sequence

END = 256
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def _run(sequence, tokens):
    """Append until the sequence ends; (ending, text, generated tokens)."""
    for token in tokens:
        ending = sequence.append(token, None)
        if ending is not None:
            answer = sequence.completion(ending, 1.0)
            return ending, answer.text, answer.token_ids
    raise AssertionError("did not end")


def test_end_token_is_no_part_of_the_answer():
    """The model's end token ends the text and is not among the tokens."""
    got = _run(make_sequence(end=(END,)), [*b"ok", END])
    assert got == (Ending(STOP), "ok", tuple(b"ok"))


def test_end_at_once_is_an_empty_text():
    """An end token as the first token: empty text, no tokens, no time to first token."""
    sequence = make_sequence(end=(END,))
    assert _run(sequence, [END]) == (Ending(STOP), "", ())
    assert sequence.completion(Ending(STOP), 1.0).ttft_s is None


def test_stop_token_is_named():
    """A row's own stop token ends the text; stop_reason says which."""
    assert _run(make_sequence(stop_token_ids=(98,)), b"ab") == (Ending(STOP, 98), "a", (97,))


def test_ignore_eos_goes_on():
    """With ignore_eos the end token is a token like others; own stop tokens still count."""
    sequence = make_sequence(end=(END,), ignore_eos=True, stop_token_ids=(99,))
    assert _run(sequence, [97, END, 98, 99]) == (Ending(STOP, 99), "ab", (97, END, 98))


def test_length_ends_with_the_last_token_counted():
    """max_new tokens, not one more or fewer."""
    assert _run(make_sequence(max_new=3), b"abcdef") == (Ending(LENGTH), "abc", tuple(b"abc"))


def test_end_token_in_place_of_the_token_after_the_last_never_comes():
    """A text that fills its length ends by length, whatever would come next."""
    got = _run(make_sequence(max_new=1, end=(END,)), [97, END])
    assert got == (Ending(LENGTH), "a", (97,))


def test_stop_string_counts_before_length():
    """A match known with the last token allowed is a stop."""
    got = _run(make_sequence(max_new=3, stop=("bc",)), b"abc")
    assert got == (Ending(STOP, "bc"), "a", tuple(b"abc"))


@pytest.mark.parametrize("text", ["é", "漢字", "a🙂b"])
def test_characters_over_several_tokens_are_whole(text):
    """Text comes when a character is complete, and is exact at the end."""
    sequence = make_sequence(end=(END,))
    pieces = []
    for token in text.encode():
        sequence.append(token, None)
        pieces.append(sequence.take_text())
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_unfinished_character_is_replaced():
    """A text cut within a character ends with U+FFFD."""
    tokens = "a🙂".encode()[:3]
    assert _run(make_sequence(max_new=3), tokens)[1] == "a\ufffd"


def test_held_back_text_belongs_to_a_text_that_ends_otherwise():
    """The beginning of a stop string is text when the end token comes instead."""
    assert _run(make_sequence(end=(END,), stop=("bcd",)), [*b"abc", END])[1] == "abc"


def test_logprobs_are_those_of_the_tokens_that_count():
    """One entry a generated token, none for the end token."""
    sequence = make_sequence(end=(END,), logprobs=0)
    entries = [TokenLogprobs(97, -1.0, ()), TokenLogprobs(END, -2.0, ())]
    sequence.append(97, entries[0])
    ending = sequence.append(END, entries[1])
    assert sequence.completion(ending, 1.0).logprobs == (entries[0],)


def test_failure_keeps_the_prompt_and_has_no_text():
    """An error has no text, not even what was generated before."""
    sequence = make_sequence((5, 6))
    sequence.append(97, None)
    failure = sequence.failure(TooLongError("why"), 2.0)
    assert (failure.text, failure.token_ids, failure.error) == (None, (), "why")
    assert ErrorKind.TOO_LONG == failure.error_kind
    assert (failure.finish_reason, failure.prompt_token_ids) == (FinishReason.ERROR, (5, 6))


def test_known_tokens_survive_preemption():
    """After a preemption the tokens computed once are remembered as such."""
    sequence = make_sequence((5, 6, 7))
    sequence.computed(2)
    sequence.num_computed_tokens = 0
    sequence.computed(1)
    assert (sequence.num_computed_tokens, sequence.num_known_tokens) == (1, 2)

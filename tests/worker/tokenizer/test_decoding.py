"""Decoding any ids, whatever the kind of tokenizer."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.tokenizer.checkpoint_tokenizer import checkpoint_tokenizer

from . import test_checkpoint_tokenizer, test_plain_bpe, test_sentencepiece, test_unigram
from .test_word_piece import bert
from .vocab_file import BLANK, byte_level


def every_kind():
    """A tokenizer of each kind."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        test_checkpoint_tokenizer.byte_level(folder)
        words = {"a": -1.0, f"{BLANK}a": -2.0, "\u00e9": -3.0}
        merges = [f"{BLANK} h", f"{BLANK}h i", "\n \n"]
        plain = [*test_plain_bpe.BYTES, *test_plain_bpe.WORDS]
        return {
            "gpt2": byte_level(folder / "gpt2"),
            "gemma4": test_plain_bpe.gemma4(folder / "gemma4", plain, merges),
            "llama": test_sentencepiece.sentencepiece(folder / "llama", words),
            "t5": test_unigram.unigram(folder / "t5", words),
            "bert": bert(folder / "bert"),
            "folder": checkpoint_tokenizer(folder),
        }


KINDS = every_kind()


@pytest.mark.parametrize("kind", KINDS)
@given(ids=st.lists(st.integers(0, 400), max_size=20))
def test_any_ids_have_a_text(kind, ids):
    """No ids fail, those above the vocabulary included; incremental is whole decoding."""
    tokenizer = KINDS[kind]
    raw = b"".join(map(tokenizer.piece, ids))
    detokenizer = tokenizer.detokenizer()
    pushed = "".join(map(detokenizer.push, ids)) + detokenizer.finish()
    assert raw.decode("utf-8", "replace") == tokenizer.decode(ids) == pushed


@pytest.mark.parametrize("kind", ["gpt2", "gemma4", "llama", "folder"])
@given(raw=st.binary(max_size=12))
def test_no_byte_is_lost(kind, raw):
    """Kinds with a token for every byte can write any bytes, UTF-8 or not."""
    tokenizer = KINDS[kind]
    by_byte = {tokenizer.piece(i): i for i in range(tokenizer.vocab_size) if tokenizer.piece(i)}
    ids = [by_byte[bytes([byte])] for byte in raw]
    assert raw == b"".join(map(tokenizer.piece, ids))


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # the first text compiles
@given(pieces=st.lists(st.sampled_from(["a", "h", "he", "llo", " ", "\n", "\u00e9", "un"])))
def test_no_text_has_fewer_tokens_than_it_is_said_to(kind, pieces):
    """The bound by which far too long prompts are refused is one, also where blanks are merged."""
    tokenizer, text = KINDS[kind], "".join(pieces)
    assert tokenizer.fewest_tokens(text) <= len(tokenizer.encode_bare(text))

"""Byte-level BPE."""

import pytest
from gguf import TokenType
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import GGUFError, RowError, UnsupportedModelError

from .vocab_file import byte_alphabet, byte_level, open_tokenizer, write_vocab


def with_tokens(path, *tokens, types=None, pre="gpt-2", merges=("a b",)):
    """A tokenizer of 256 bytes, one merged token "ab" (id 256), and more tokens."""
    tokens = [*byte_alphabet(), "ab", *tokens]
    keys = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": False}
    write_vocab(path, "gpt2", tokens, types=types, merges=list(merges), keys=keys)
    return open_tokenizer(path)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(small, text):
    """Decoding the ids of any text gives the text: nothing is normalised, nothing is lost."""
    assert text == small.decode(small.encode(text))


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_control_ids_never_come_from_plain_text(small, text):
    """No text becomes a control token."""
    assert not set(small.encode(f"{text}<|im_end|>{text}")) & {261, 262}


def test_merges_by_rank(small):
    """Merges apply in the order of the list, within words."""
    assert [259, 260] == small.encode("hello hello")
    assert ["he", "l", "p"] == [small.piece_text(i) for i in small.encode("help")]


@pytest.mark.parametrize(("pre", "expected"), [("llama-bpe", ["cat"]), ("gpt-2", ["c", "a", "t"])])
def test_a_whole_word_that_is_a_token(tmp_path, pre, expected):
    """With ignore_merges a word in the vocabulary is its token though no merges lead to it."""
    tokenizer = with_tokens(tmp_path / "v", "cat", pre=pre)
    assert expected == [tokenizer.piece_text(i) for i in tokenizer.encode_bare("cat")]


@pytest.mark.parametrize("pre", ["llama-bpe", "gpt-2"])
def test_a_control_token_is_no_word(tmp_path, pre):
    """A control token that is spelled like a word stays out of text."""
    types = {"stop": TokenType.CONTROL}
    tokenizer = with_tokens(tmp_path / "v", "stop", types=types, pre=pre)
    assert ["s", "t", "o", "p"] == [tokenizer.piece_text(i) for i in tokenizer.encode_bare("stop")]


def test_a_merge_that_makes_a_control_token_is_left_out(tmp_path):
    """Text never becomes a control token, not even where the merges say so."""
    tokenizer = with_tokens(tmp_path / "v", types={"ab": TokenType.CONTROL})
    assert ["a", "b"] == [tokenizer.piece_text(i) for i in tokenizer.encode_bare("ab")]


def test_merges_with_blanks_in_their_parts(tmp_path):
    """The blank that parts a merge is found where both sides and their sum are tokens."""
    tokenizer = with_tokens(tmp_path / "v", "x y", "x yz", merges=["a b", "x y z"])
    assert 259 == tokenizer.vocab_size


@pytest.mark.parametrize("merge", ["h", "h zz", "zz e", "h l", ""])
def test_merges_that_do_not_fit_the_vocabulary(tmp_path, merge):
    """A merge of something else than two tokens into a token is refused with key and entry."""
    with pytest.raises(GGUFError, match=r"v\.gguf: key tokenizer\.ggml\.merges, entry 1 is "):
        byte_level(tmp_path / "v.gguf", merges=["h e", merge])


def test_no_merges(tmp_path):
    """A byte-level vocabulary without a list of merges is refused with the key."""
    with pytest.raises(GGUFError, match=r"key tokenizer\.ggml\.merges is missing"):
        byte_level(tmp_path / "v.gguf", merges=None)


def test_unknown_pre_tokenizer(tmp_path):
    """An unknown name is refused, and the known ones are listed."""
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.pre is 'abacus'.*qwen2"):
        byte_level(tmp_path / "v.gguf", keys={"tokenizer.ggml.pre": "abacus"})


def test_a_missing_byte_fails_the_row(tmp_path):
    """Text with a byte that has no token fails the row; it is not dropped in silence."""
    tokens = [char for char in byte_alphabet() if char != "z"]
    write_vocab(tmp_path / "v", "gpt2", [*tokens, "ab"], merges=["a b"])
    tokenizer = open_tokenizer(tmp_path / "v")
    assert "abc" == tokenizer.decode(tokenizer.encode("abc"))
    with pytest.raises(RowError, match="0x7A"):
        tokenizer.encode("abz")


def test_a_token_outside_the_byte_alphabet_is_its_own_text(tmp_path):
    """A token with characters that stand for no byte is written as it is."""
    assert "\u4e16".encode() == with_tokens(tmp_path / "v", "\u4e16").piece(257)

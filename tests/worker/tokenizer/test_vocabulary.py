"""Vocabularies that do not hold together."""

import pytest
from gguf import TokenType

from worker.errors import GGUFError

from .vocab_file import byte_level, open_tokenizer, write_vocab


def test_a_token_twice(tmp_path):
    """Two tokens with one text are refused with both ids."""
    write_vocab(tmp_path / "v.gguf", "llama", ["a", "b", "a"], scores=[0.0] * 3)
    with pytest.raises(GGUFError, match=r"v\.gguf: .*'a' twice, as ids 0 and 2"):
        open_tokenizer(tmp_path / "v.gguf")


@pytest.mark.parametrize("key", ["bos", "eos", "eot", "eom", "padding", "unknown", "fim_pad"])
def test_an_id_outside_the_vocabulary(tmp_path, key):
    """A special id past the last token is refused with key, value and size."""
    keys = {"tokenizer.ggml.pre": "gpt-2", f"tokenizer.ggml.{key}_token_id": 264}
    with pytest.raises(GGUFError, match=rf"{key}_token_id is 264, expected .* size 264"):
        byte_level(tmp_path / "v.gguf", keys=keys)


def test_a_malformed_byte_token(tmp_path):
    """A byte token of another form than <0x0A> is refused with its id."""
    types = {"<0xZZ>": TokenType.BYTE}
    write_vocab(tmp_path / "v", "llama", ["a", "<0xZZ>"], types=types, scores=[0.0] * 2)
    with pytest.raises(GGUFError, match=r"'<0xZZ>' as a byte token \(id 1, type 6\)"):
        open_tokenizer(tmp_path / "v")


def test_bos_that_is_asked_for_and_missing(tmp_path):
    """add_bos_token without an id of BOS is refused with both keys."""
    keys = {"tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.add_bos_token": True}
    with pytest.raises(GGUFError, match=r"add_bos_token asks .*bos_token_id is missing"):
        byte_level(tmp_path / "v", keys=keys)


def test_a_byte_level_file_without_ids_has_no_bos_and_eos(tmp_path):
    """No word of the vocabulary is taken for EOS because a key is missing."""
    tokenizer = byte_level(tmp_path / "v", keys={})
    assert (None, None, None) == (tokenizer.bos_id, tokenizer.eos_id, tokenizer.bos_token)


def test_end_tokens_by_id_and_name(tmp_path):
    """eos, eot and eom end a completion, and so does a token known by its name."""
    names = ("eos", "eot", "eom")
    keys = {f"tokenizer.ggml.{name}_token_id": place for place, name in enumerate(names)}
    tokenizer = byte_level(tmp_path / "v", keys=keys)
    assert {0, 1, 2, 262} == tokenizer.end_ids
    assert "<|im_end|>" == tokenizer.piece_text(262)


@pytest.mark.parametrize(
    ("s_type", "ends"), [(TokenType.CONTROL, True), (TokenType.USER_DEFINED, False)]
)
def test_strike_through_is_no_end(tmp_path, s_type, ends):
    """</s> ends a completion where <s> is a control token; beside a tag <s> it is a tag."""
    types = {"<s>": s_type, "</s>": TokenType.USER_DEFINED, "<unk>": TokenType.UNKNOWN}
    keys = {"tokenizer.ggml.eos_token_id": 0}
    tokens = ["<unk>", "<s>", "</s>"]
    write_vocab(tmp_path / "v", "llama", tokens, types=types, scores=[0.0] * 3, keys=keys)
    assert ends == (2 in open_tokenizer(tmp_path / "v").end_ids)


def test_harmony_goes_on_after_a_message(tmp_path):
    """Where <|return|> and <|call|> end an answer, <|end|> does not."""
    names = ["<|end|>", "<|return|>", "<|call|>"]
    types = dict.fromkeys(names, TokenType.CONTROL)
    keys = {"tokenizer.ggml.eos_token_id": 0}
    tokens = ["x", *names]
    write_vocab(tmp_path / "v", "llama", tokens, types=types, scores=[0.0] * 4, keys=keys)
    assert {0, 2, 3} == open_tokenizer(tmp_path / "v").end_ids


def test_tokens_around_a_gap_are_special_by_name(tmp_path):
    """A file that calls them ordinary does not make text of them, nor them of text."""
    tokens = ["a", "<PRE>", "<|fim_suffix|>"]
    tokenizer = open_tokenizer(write_vocab(tmp_path / "v", "llama", tokens, scores=[0.0] * 3))
    assert {"<PRE>": 1, "<|fim_suffix|>": 2} == tokenizer.control_tokens
    assert b"" == tokenizer.piece(1)

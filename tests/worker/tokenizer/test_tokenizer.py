"""Special tokens, BOS and EOS, pieces."""

import pytest
from gguf import TokenType

from worker.tokenizer.rendered_prompt import RenderedPrompt
from worker.tokenizer.tokenizer import SpecialText

from .vocab_file import byte_level, open_tokenizer, write_vocab

START, END, THINK = 261, 262, 263
PRE = {"tokenizer.ggml.pre": "gpt-2"}


def with_bos(path):
    """A tokenizer that adds <|im_start|> in front and <|im_end|> behind."""
    ids = {"tokenizer.ggml.bos_token_id": START, "tokenizer.ggml.eos_token_id": END}
    flags = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}
    return byte_level(path, keys={**PRE, **ids, **flags})


def test_control_tokens_in_text(small):
    """A control token's text is text, or the token where parsing is asked for."""
    assert END not in small.encode("he<|im_end|>")
    assert [256, END] == small.encode("he<|im_end|>", special=SpecialText.PARSE)


def test_user_defined_tokens_are_found_in_plain_text(small):
    """A user-defined token is itself in any text."""
    assert [256, THINK, 256] == small.encode("he<think>he")


def test_bos_and_eos_by_the_files_rules(tmp_path):
    """A plain prompt gets BOS and EOS, an empty one too; bare text and chats get no EOS."""
    tokenizer = with_bos(tmp_path / "v")
    assert [START, 256, END] == tokenizer.encode("he")
    assert [START, END] == tokenizer.encode("")
    assert [256] == tokenizer.encode_bare("he")
    assert [START, 256] == tokenizer.encode_chat(RenderedPrompt("he"))


def test_bos_is_not_doubled(tmp_path):
    """A template that writes BOS gets no second one; a user who spells it does not count."""
    tokenizer = with_bos(tmp_path / "v")
    assert [START, 256] == tokenizer.encode_chat(RenderedPrompt("<|im_start|>he"))
    spelled = tokenizer.encode_chat(RenderedPrompt("<#|im_start|>he", guard="#"))
    assert [START, *tokenizer.encode_bare("<|im_start|>he")] == spelled


def test_bos_after_other_text_is_not_doubled(tmp_path):
    """A template that starts with a line break writes its BOS all the same."""
    tokenizer = with_bos(tmp_path / "v")
    assert [10, START, 256] == tokenizer.encode_chat(RenderedPrompt("\n<|im_start|>he"))


def test_an_ordinary_token_as_bos_is_not_doubled(tmp_path):
    """A BOS that is a word of the vocabulary is taken off the front of the template's text."""
    keys = {**PRE, "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.add_bos_token": True}
    tokenizer = byte_level(tmp_path / "v", keys=keys)
    assert [256, *tokenizer.encode_bare("x")] == tokenizer.encode_chat(RenderedPrompt("hex"))


def test_guards_leave_no_trace(small):
    """Guarded tokens are the ids of their text, with words and merges across the guard."""
    guarded = RenderedPrompt("<|im_start|>he#llo<#|im_end|><|im_end|>", guard="#")
    expected = [START, *small.encode_bare("hello<|im_end|>"), END]
    assert expected == small.encode_chat(guarded)
    assert "<|im_start|>hello<|im_end|><|im_end|>" == guarded.text


def test_pieces(small):
    """Control tokens have a name and no text, user-defined ones their text, bytes themselves."""
    assert (b"", "<|im_end|>") == (small.piece(END), small.piece_text(END))
    assert (b"<think>", "<think>") == (small.piece(THINK), small.piece_text(THINK))
    assert (b"\xff", "\ufffd") == (small.piece(255), small.piece_text(255))
    assert " hello" == small.decode([260])


def test_unused_tokens_add_nothing(tmp_path):
    """Tokens of type unused have no text."""
    types = {"ab": TokenType.UNUSED}
    write_vocab(tmp_path / "v", "llama", ["a", "ab"], types=types, scores=[0.0, 0.0])
    assert b"" == open_tokenizer(tmp_path / "v").piece(1)


def test_phi3_swallows_white_space_after_special_tokens(tmp_path):
    """Known by the model's name, as in llama.cpp."""
    keys = {**PRE, "general.name": "Phi-3 mini"}
    tokenizer = byte_level(tmp_path / "v", keys=keys)
    parsed = tokenizer.encode("<|im_end|> \n he<think>\n", special=SpecialText.PARSE)
    assert [END, 256, THINK] == parsed


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {}),
        ({"tokenizer.chat_template": "A"}, {"default": "A"}),
        (
            {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "B"},
            {"default": "A", "tool_use": "B"},
        ),
        (
            {"tokenizer.chat_template.default": "C", "tokenizer.chat_template.rag": "B"},
            {"default": "C", "rag": "B"},
        ),
        (
            {"tokenizer.chat_template": "A", "tokenizer.chat_template.default": "C"},
            {"default": "A"},
        ),
        (
            {"tokenizer.chat_template": "", "tokenizer.chat_template.default": "C"},
            {"default": "C"},
        ),
    ],
)
def test_the_files_templates_by_name(tmp_path, keys, expected):
    """The unnamed template is the default, and stands before one of that name."""
    assert expected == byte_level(tmp_path / "v", keys={**PRE, **keys}).chat_templates


def test_a_parsed_bos_is_not_doubled(tmp_path):
    """Where control tokens are parsed, a row's prompt may bring its own BOS and EOS."""
    tokenizer = with_bos(tmp_path / "v")
    spelled = "<|im_start|>he<|im_end|>"
    assert [START, 256, END] == tokenizer.encode_prompt(spelled, special=SpecialText.PARSE)
    as_text = [START, *tokenizer.encode_bare(spelled), END]
    assert as_text == tokenizer.encode_prompt(spelled, special=SpecialText.TEXT)

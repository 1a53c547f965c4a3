"""Tokenizers of checkpoint folders."""

import json

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from worker.errors import CheckpointError, RowError, UnsupportedModelError
from worker.tokenizer.checkpoint_tokenizer import checkpoint_tokenizer
from worker.tokenizer.rendered_prompt import RenderedPrompt
from worker.tokenizer.tokenizer import SpecialText

from .vocab_file import BLANK, byte_alphabet

BYTE_TOKENS = {f"<0x{byte:02X}>": byte for byte in range(256)}


def added(text, **flags):
    """A special token."""
    return tokenizers.AddedToken(text, special=True, normalized=False, **flags)


def byte_level(folder, **config):
    """A folder of a byte-level tokenizer: 256 bytes, two merged tokens, three added ones."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    vocab |= {"he": 256, "llo": 257}
    model = models.BPE(vocab=vocab, merges=[("h", "e")])
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([added("<s>"), added("</s>", rstrip=True)])
    library.add_tokens([tokenizers.AddedToken("<think>", normalized=False)])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 258)]
    )
    library.save(str(folder / "tokenizer.json"))
    fields = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return library


def sentencepiece(folder, scheme):
    """A folder of a tokenizer with blanks as U+2581 and bytes for what is no token."""
    vocab = {**BYTE_TOKENS, BLANK: 256, "a": 257, f"{BLANK}a": 258, "<s>": 259}
    library = tokenizers.Tokenizer(
        models.BPE(vocab=vocab, merges=[(BLANK, "a")], byte_fallback=True)
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    library.add_special_tokens([added("<s>")])
    library.save(str(folder / "tokenizer.json"))
    return library


@pytest.mark.parametrize("make", [byte_level, lambda folder: sentencepiece(folder, "first")])
def test_texts_are_neither_cut_nor_filled_up(tmp_path, make):
    """Files of models that were trained so say it; transformers does not do it either."""
    library = make(tmp_path)
    text = "a<s>a a a"
    expected = checkpoint_tokenizer(tmp_path).encode(text)
    library.enable_truncation(2)
    library.enable_padding(length=50)
    library.save(str(tmp_path / "tokenizer.json"))
    assert expected == checkpoint_tokenizer(tmp_path).encode(text)


def test_control_tokens_without_an_embedding_are_left_out(tmp_path):
    """Gemma 3's text models have one for images; their text stays text."""
    library = byte_level(tmp_path)
    library.add_special_tokens([added("<image>")])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = checkpoint_tokenizer(tmp_path, 261)
    assert 261 == tokenizer.vocab_size
    for special in SpecialText:
        assert max(tokenizer.encode("<image>", special=special)) < 261
    whole = checkpoint_tokenizer(tmp_path)
    assert [258, 261] == whole.encode("<image>", special=SpecialText.PARSE)


def test_other_tokens_without_an_embedding_are_refused(tmp_path):
    """The tokenizer is another model's."""
    byte_level(tmp_path)
    with pytest.raises(CheckpointError, match=r"token <think> has the id 260, .* only 260 rows"):
        checkpoint_tokenizer(tmp_path, 260)


def test_an_id_around_texts_that_no_token_has_is_refused(tmp_path):
    """It has no embedding."""
    library = byte_level(tmp_path)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 999)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="post-processor adds the id 999"):
        checkpoint_tokenizer(tmp_path)


def test_a_pattern_that_backtracks_without_end_is_an_error_of_the_row(tmp_path):
    """The library panics then, with what is no Exception; other texts are encoded."""
    library = byte_level(tmp_path)
    endless = pre_tokenizers.Split(tokenizers.Regex("(a+)+$"), "isolated")
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.pre_tokenizer = pre_tokenizers.Sequence([endless, bytes_of])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = checkpoint_tokenizer(tmp_path)
    with pytest.raises(RowError, match=r"cannot encode the text: Onig: .*retry-limit-in-match"):
        tokenizer.encode("a" * 40 + "c")
    assert [258, 256] == tokenizer.encode("he")


TEXTS = ["hello", "he<think>he", "h\u00e9 \n\n 12", "<s>he</s>  he", "", "\U0001f600"]


def test_ids_are_the_librarys(tmp_path):
    """With special tokens parsed, every text has the ids that the library alone gives."""
    library = byte_level(tmp_path)
    tokenizer = checkpoint_tokenizer(tmp_path)
    for text in TEXTS:
        expected = library.encode(text, add_special_tokens=False).ids
        assert expected == tokenizer.encode_bare(text, special=SpecialText.PARSE)
        assert library.encode(text).ids == tokenizer.encode(text, special=SpecialText.PARSE)


def test_special_tokens_in_text_are_text(tmp_path):
    """Control tokens are not found in plain text, added words are, and BOS is not doubled."""
    byte_level(tmp_path)
    tokenizer = checkpoint_tokenizer(tmp_path)
    assert not {258, 259} & set(tokenizer.encode_bare("<s>he</s>"))
    assert [256, 260] == tokenizer.encode_bare("he<think>")
    assert [258, 256] == tokenizer.encode_chat(RenderedPrompt("<s>he"))
    assert (258, 259, frozenset({259})) == (
        tokenizer.bos_id,
        tokenizer.eos_id,
        tokenizer.end_ids,
    )


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_blanks_in_front(tmp_path, scheme):
    """A text after a special token has a blank in front only where the library gives it one."""
    library = sentencepiece(tmp_path, scheme)
    tokenizer = checkpoint_tokenizer(tmp_path)
    for text in ("a a", "<s>a", "a<s>a", " a<s> \u00e9"):
        expected = library.encode(text).ids
        assert expected == tokenizer.encode_bare(text, special=SpecialText.PARSE), text


def test_text_comes_back(tmp_path):
    """Bytes of byte-level tokens, and of byte tokens, joined are the text."""
    byte_level(tmp_path)
    tokenizer = checkpoint_tokenizer(tmp_path)
    assert "he\u00e9\U0001f600" == tokenizer.decode(tokenizer.encode("he\u00e9\U0001f600"))
    sentencepiece(tmp_path, "never")
    tokenizer = checkpoint_tokenizer(tmp_path)
    assert "a \u00e9a" == tokenizer.decode(tokenizer.encode("a \u00e9a"))


def test_templates_of_a_folder(tmp_path):
    """From the configuration, by name, and from files, which stand before it."""
    byte_level(tmp_path, chat_template="A")
    assert {"default": "A"} == checkpoint_tokenizer(tmp_path).chat_templates
    named = [{"name": "default", "template": "B"}, {"name": "tool_use", "template": "C"}]
    byte_level(tmp_path, chat_template=named)
    assert {"default": "B", "tool_use": "C"} == checkpoint_tokenizer(tmp_path).chat_templates
    (tmp_path / "chat_template.jinja").write_text("D")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("E")
    expected = {"default": "D", "tool_use": "C", "rag": "E"}
    assert expected == checkpoint_tokenizer(tmp_path).chat_templates


def test_ends_of_generation(tmp_path):
    """Every id that generation_config.json names ends a completion."""
    byte_level(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [259, 7]}')
    assert frozenset({259, 7}) == checkpoint_tokenizer(tmp_path).end_ids
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9999}')
    with pytest.raises(CheckpointError, match=r"eos_token_id is 9999.*below the vocabulary size"):
        checkpoint_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, r"tokenizer\.json is missing"),
        ("tokenizer.json", "[1]", "found a list"),
        ("tokenizer.json", "{", "no JSON"),
        ("tokenizer.json", "{}", "cannot be used"),
        ("tokenizer.json", '{"added_tokens": [{"id": "x"}]}', "added_tokens is not a list"),
        ("tokenizer_config.json", '{"chat_template": 1}', "neither text nor a list"),
        ("tokenizer_config.json", "[" * 100_000, "no JSON"),
    ],
)
def test_broken_files(tmp_path, name, content, words):
    """The file and what is wrong with it are named."""
    byte_level(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=words):
        checkpoint_tokenizer(tmp_path)


def test_a_tokenizer_that_cannot_be_decoded(tmp_path):
    """Steps that do not say how tokens spell text are named."""
    library = tokenizers.Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    library.normalizer = normalizers.Lowercase()
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UnsupportedModelError, match="steps Lowercase; supported: ByteLevel"):
        checkpoint_tokenizer(tmp_path)

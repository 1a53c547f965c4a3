"""Token ids of two real models and of the tiny ones, from independent programs."""

import json

import pytest

from worker.tokenizer.tokenizer import SpecialText

from .vocab_file import open_tokenizer

TINY = (
    ("llama", "llama-F16.gguf"),
    ("llama3-rope", "llama3-rope-F16.gguf"),
    ("gemma3", "gemma3-F16.gguf"),
)


def golden_prompts(data, name):
    """The prompts of a golden file."""
    return json.loads((data / "golden" / f"{name}.json").read_text())["prompts"]


def check_prompts(tokenizer, prompts):
    """Compare all prompts of a golden file."""
    for prompt in prompts:
        special = SpecialText.PARSE if prompt["parse_special"] else SpecialText.TEXT
        assert prompt["add_special"]
        assert prompt["ids"] == tokenizer.encode(prompt["text"], special=special), prompt["name"]


def test_smollm2(smollm2, data):
    """SmolLM2's byte-level vocabulary gives the golden ids of all ten prompts."""
    check_prompts(open_tokenizer(smollm2), golden_prompts(data, "smollm2-135m-q4_1"))


def test_gemma3(gemma3_270m, data):
    """Gemma 3's 262,144 SentencePiece tokens give the golden ids of all ten prompts."""
    check_prompts(open_tokenizer(gemma3_270m), golden_prompts(data, "gemma-3-270m-q4_k_m"))


def test_gemma3_white_space_and_tags(gemma3_270m):
    """Runs of blanks and line breaks are Gemma's own tokens, longest first; so are HTML tags."""
    tokenizer = open_tokenizer(gemma3_270m)
    assert [167, 145] == tokenizer.encode_bare(" " * 40)
    assert [137, 115] == tokenizer.encode_bare("\n" * 40)
    assert ["<s>", "x", "</s>"] == list(
        map(tokenizer.piece_text, tokenizer.encode_bare("<s>x</s>"))
    )
    assert {"<eos>", "<end_of_turn>"} == set(map(tokenizer.piece_text, tokenizer.end_ids))


@pytest.mark.parametrize(("name", "file"), TINY)
def test_tiny_models(data, name, file):
    """The tiny models' vocabularies give llama.cpp's ids."""
    folder = data / "tiny" / name
    tokenizer = open_tokenizer(folder / file)
    for prompt in json.loads((folder / "model.json").read_text())["prompts"]:
        assert prompt["ids"] == tokenizer.encode(prompt["text"])

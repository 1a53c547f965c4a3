"""llama.cpp's own test vectors, for every vocabulary in the folder, and more from it for five."""

import json

import pytest

from worker.tokenizer.tokenizer import SpecialText

from .conftest import VOCAB_FOLDER
from .vocab_file import open_tokenizer

NAMES = ("gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2")
FOUND = sorted(path.name[len("ggml-vocab-") : -9] for path in VOCAB_FOLDER.glob("*.gguf.inp"))
ALL = FOUND or NAMES  # without the folder, the names of what is skipped
SEPARATOR = "\n__ggml_vocab_test__\n"


@pytest.fixture(params=NAMES, scope="module")
def named(request, vocab_folder):
    """A vocabulary's name and its tokenizer."""
    path = vocab_folder / f"ggml-vocab-{request.param}.gguf"
    return request.param, open_tokenizer(path)


@pytest.mark.parametrize("name", ALL)
def test_ids_of_the_original_tokenizers(name, vocab_folder):
    """Every text gets the ids that the original tokenizer gives, without special tokens."""
    tokenizer = open_tokenizer(vocab_folder / f"ggml-vocab-{name}.gguf")
    lines = (vocab_folder / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    texts = texts_of(vocab_folder, name)
    expected = [[int(word) for word in line.split()] for line in lines[: len(texts)]]
    assert len(texts) >= 45
    assert expected == [tokenizer.encode_bare(text) for text in texts]


def texts_of(vocab_folder, name):
    """The texts of a vector file, byte for byte."""
    raw = (vocab_folder / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode()
    return raw.split(SEPARATOR)[:-1]


def test_special_tokens_as_in_llama_cpp(named, vocab_folder):
    """BOS, control tokens parsed or left as text, and user-defined tokens agree with llama.cpp."""
    name, tokenizer = named
    vectors = json.loads((vocab_folder / "extra.json").read_text())[name]["vectors"]
    assert len(vectors) >= 32
    for vector in vectors:
        special = SpecialText.PARSE if vector["parse_special"] else SpecialText.TEXT
        encode = tokenizer.encode if vector["add_special"] else tokenizer.encode_bare
        assert vector["ids"] == encode(vector["text"], special=special), vector


def test_text_comes_back_from_ids(named, vocab_folder):
    """Decoding the ids of a text gives the text, after the blank that some models put in front."""
    name, tokenizer = named
    front = " " if name in {"llama-spm", "phi-3"} else ""
    for text in filter(None, texts_of(vocab_folder, name)):
        assert front + text == tokenizer.decode(tokenizer.encode_bare(text))

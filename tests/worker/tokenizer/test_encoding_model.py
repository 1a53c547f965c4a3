"""Kinds of tokenizer and pre-tokenizers by name."""

import pytest
from gguf import TokenType

from worker.errors import EngineConfigError, UnsupportedModelError
from worker.gguf import GGUFFile
from worker.tokenizer.tokenizer import Tokenizer

from .vocab_file import byte_level, write_vocab


def metadata(path):
    """The metadata of a vocabulary file."""
    return GGUFFile.open(path).metadata


def test_an_unknown_pre_tokenizer(tmp_path):
    """It is an error that names the key, the name and the way to go on."""
    with pytest.raises(UnsupportedModelError, match=r"pre is 'newer-bpe'.*tokenizer_pre: a\.x-4"):
        byte_level(tmp_path / "v", keys={"tokenizer.ggml.pre": "newer-bpe"})


def test_an_unknown_pre_tokenizer_by_another_name(tmp_path):
    """Named by the user, a known one takes its place."""
    tokens = [*map(str, range(10)), "12"]
    path = write_vocab(
        tmp_path / "v", "gpt2", tokens, merges=["1 2"], keys={"tokenizer.ggml.pre": "newer-bpe"}
    )
    by_name = {
        name: Tokenizer.from_metadata(metadata(path), tokenizer_pre=name).encode("12")
        for name in ("llama-bpe", "qwen2")
    }
    assert {"llama-bpe": [10], "qwen2": [1, 2]} == by_name


def test_a_name_that_is_unknown_too(tmp_path):
    """The user's name is checked like the file's."""
    path = write_vocab(tmp_path / "v", "gpt2", ["a", "aa"], merges=["a a"])
    with pytest.raises(EngineConfigError, match=r"tokenizer_pre is 'nope'; supported: .*qwen2"):
        Tokenizer.from_metadata(metadata(path), tokenizer_pre="nope")


def test_a_kind_without_pre_tokenizers(tmp_path):
    """A name for a SentencePiece model is refused: nothing is ignored."""
    path = write_vocab(tmp_path / "v", "llama", ["a"], scores=[0.0])
    with pytest.raises(EngineConfigError, match="has a llama tokenizer"):
        Tokenizer.from_metadata(metadata(path), tokenizer_pre="qwen2")


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "no_vocab", "x" * 5000])
def test_a_kind_that_is_not_supported(tmp_path, model):
    """The error names the kind and those that are supported."""
    path = write_vocab(tmp_path / "v", model, ["a"])
    with pytest.raises(UnsupportedModelError, match=r"key tokenizer\.ggml\.model is .*gemma4") as e:
        Tokenizer.from_metadata(metadata(path))
    assert len(str(e.value)) < 1000


def test_gemma_4_gets_bos_whatever_its_file_says(tmp_path):
    """Early files say that none is added."""
    keys = {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.bos_token_id": 1}
    types = {"<bos>": TokenType.CONTROL}
    tokens = ["a", "<bos>", "aa"]
    path = write_vocab(tmp_path / "v", "gemma4", tokens, merges=["a a"], types=types, keys=keys)
    assert [1, 0] == Tokenizer.from_metadata(metadata(path)).encode("a")

"""What is kept of a tokenizer from start to start."""

import logging

import pytest
from gguf import TokenType

from worker.file_identity import FileIdentity
from worker.tokenizer import kept_strings, merges, vocabulary
from worker.tokenizer.kept_strings import KeptStrings

from .vocab_file import BLANK, byte_alphabet, open_tokenizer, write_vocab

MANY = [f"token {i}" for i in range(10_000)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tokenizers"


@pytest.fixture
def file(tmp_path):
    """A model file; what it holds plays no part."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"a model")
    return path


def _keep(file, **lists):
    kept = KeptStrings(FileIdentity.of(file))
    for name, strings in lists.items():
        assert strings == kept.get(name, lambda strings=strings: strings)
    kept.keep()


def _kept(file, name):
    return KeptStrings(FileIdentity.of(file)).get(name, lambda: ["worked out"])


def test_lists_come_back_as_they_were(file):
    """Any strings: empty ones, separators, several lists, an empty list."""
    strange = ["", "", "a\nb\0", "\ufdd0", "\ufdd1x", "\U0001f600", ""]
    _keep(file, many=MANY, strange=strange, none=[], one=[""])
    found = {name: _kept(file, name) for name in ("many", "strange", "none", "one", "other")}
    expected = {"many": MANY, "strange": strange, "none": [], "one": [""], "other": ["worked out"]}
    assert expected == found


def test_a_list_with_every_separator_is_worked_out_again(file):
    """There is nothing to put between such strings; other lists are kept."""
    _keep(file, many=MANY, all=[*map(chr, range(0xFDD0, 0xFDF0))])
    assert MANY == _kept(file, "many")
    assert ["worked out"] == _kept(file, "all")


def test_another_version_of_the_file_keeps_its_own(file, cache):
    """A model written anew takes the place of the old one; nothing piles up."""
    _keep(file, many=MANY)
    file.write_bytes(b"another model")
    assert ["worked out"] == _kept(file, "many")
    _keep(file, many=MANY[::-1])
    assert MANY[::-1] == _kept(file, "many")
    assert 1 == len(list(cache.iterdir()))


def test_other_sources_work_out_their_own(file, monkeypatch):
    """Another release may find other strings."""
    _keep(file, many=MANY)
    monkeypatch.setattr(kept_strings, "_sources", lambda: "another release")
    assert ["worked out"] == _kept(file, "many")


def test_what_is_damaged_is_worked_out_again(file, cache, caplog):
    """Half a file, as a machine that stops may leave it, costs time and a message."""
    _keep(file, many=MANY)
    [path] = cache.iterdir()
    path.write_bytes(path.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        assert ["worked out"] == _kept(file, "many")
    assert "damaged" in caplog.text
    _keep(file, many=MANY)
    assert MANY == _kept(file, "many")


def test_an_unusable_cache_costs_time_only(file, cache, caplog):
    """A file where the folder should be: lists are worked out, and messages say why."""
    cache.parent.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        _keep(file, many=MANY)
    assert ["cannot read", "cannot keep"] == [m.split(" a ")[0] for m in caplog.messages]


def test_little_is_not_kept(file, cache):
    """A small vocabulary is worked out as fast as it is read."""
    _keep(file, few=["a", "b"])
    assert not cache.exists()


def _byte_level(path):
    tokens = [*byte_alphabet(), "he", "ll", "hell", "<|end|>", *MANY]
    return write_vocab(
        path,
        "gpt2",
        tokens,
        types={"<|end|>": TokenType.CONTROL},
        merges=["h e", "l l", "he ll"],
        keys={"tokenizer.ggml.pre": "gpt-2"},
    )


def _sentencepiece(path):
    tokens = ["<unk>", BLANK, *"helo", "he", "ll", "hell", f"{BLANK}hell", f"o{BLANK}hell", *MANY]
    scores = [-float(len(tokens) - i) for i in range(len(tokens))]
    return write_vocab(path, "llama", tokens, types={"<unk>": TokenType.UNKNOWN}, scores=scores)


@pytest.mark.parametrize("write", [_byte_level, _sentencepiece])
def test_a_tokenizer_from_kept_strings_is_the_same(write, tmp_path, cache, monkeypatch):
    """The second start reads no string of the vocabulary from the file, and encodes alike."""
    path = write(tmp_path / "vocab.gguf")
    texts = ["hello hell", "ohell  hello", "token 17", "<|end|>"]
    first = open_tokenizer(path)
    assert 1 == len(list(cache.iterdir()))
    for module, name in ((vocabulary, "_tokens"), (merges, "_merges")):
        monkeypatch.delattr(module, name)
    second = open_tokenizer(path)
    for text in texts:
        ids = first.encode(text)
        assert ids == second.encode(text)
        assert first.decode(ids) == second.decode(ids)
    assert first.control_tokens == second.control_tokens

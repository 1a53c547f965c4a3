"""Pre-tokenizers by name."""

import pytest
import tokenizers
from tokenizers import pre_tokenizers

from worker.tokenizer.pre_tokenizer import PRE_TOKENIZERS

TEXT = (
    "We'LL pay 12345 \u20ac  to M\u00fcller-L\u00fcdenscheidt,\r\n\n\tfoo_bar(); \u4f60\u597d 3.14 "
)


def words(name, text):
    """Cut a text, before its bytes are mapped."""
    splits = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        for pattern in PRE_TOKENIZERS[name].patterns
    ]
    return [word for word, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_no_text_is_lost(name):
    """Every name's patterns compile, and the words joined are the text."""
    assert TEXT == "".join(words(name, TEXT))


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
@pytest.mark.parametrize("run", ["a", " ", "\n", "1", "!", "\u4e16", " \n"])
def test_long_runs_are_cut_in_time(name, run):
    """No pattern needs quadratic time for a long run, before text or at the end."""
    text = run * 20_000
    assert text + "x" + text == "".join(words(name, text + "x" + text))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["I", "'m", " 12345", "  ", " here"]),
        ("llama-bpe", ["I", "'m", " ", "123", "45", "  ", " here"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "5", "  ", " here"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "5", "  ", " here"]),
        ("default", ["I", "'", "m", " ", "123", "45", "  ", " here"]),
    ],
)
def test_known_cuts(name, expected):
    """Digits, contractions and runs of blanks are cut as each family does."""
    assert expected == words(name, "I'm 12345   here")


def test_contractions_in_capitals():
    """Llama 3 takes 'LL for a contraction, GPT-2 does not."""
    assert ["We", "'LL"] == words("llama-bpe", "We'LL")
    assert ["We", "'", "LL"] == words("gpt-2", "We'LL")


def test_cased_words():
    """GPT-4o and Tekken cut between lower and upper case."""
    assert ["get", "HTTPResponse", "'s"] == words("tekken", "getHTTPResponse's")
    assert ["get", "HTTPResponse's"] == words("gpt-4o", "getHTTPResponse's")


def test_only_the_families_with_it_ignore_merges():
    """ignore_merges is Llama 3's, Tekken's and Youtu's."""
    names = {name for name, pre in PRE_TOKENIZERS.items() if pre.ignore_merges}
    assert {"llama-bpe", "tekken", "youtu"} <= names
    assert not names & {"gpt-2", "qwen2", "smollm", "default", "dbrx", "gpt-4o"}

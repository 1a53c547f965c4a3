"""WordPiece."""

import pytest
from gguf import TokenType

from worker.errors import GGUFError

from .vocab_file import BLANK, open_tokenizer, write_vocab

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", f"{BLANK}un", "able", f"{BLANK}a", f"{BLANK},", "b"]
CONTROL = dict.fromkeys(TOKENS[:4], TokenType.CONTROL)
IDS = {
    "tokenizer.ggml.unknown_token_id": 1,
    "tokenizer.ggml.cls_token_id": 2,
    "tokenizer.ggml.seperator_token_id": 3,
}


def bert(path, **keys):
    """A tokenizer of nine tokens."""
    keys = {**IDS, **{f"tokenizer.ggml.{key}": value for key, value in keys.items()}}
    return open_tokenizer(write_vocab(path, "bert", TOKENS, types=CONTROL, keys=keys))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unable", [4, 5]),
        ("un able a", [4, 1, 6]),
        ("a,\nA", [6, 7, 6]),
        ("\u00e1", [6]),
        ("unx", [1]),
        ("un" + "able" * 30, [1]),
        ("[SEP]", [1, 1, 1]),
        ("", []),
    ],
)
def test_ids(tmp_path, text, expected):
    """Longest tokens first, lower case, no accents; unknown for a word that cannot be spelled."""
    assert expected == bert(tmp_path / "v").encode_bare(text)


def test_what_is_around_a_text(tmp_path):
    """CLS in front and SEP behind."""
    assert [2, 4, 5, 3] == bert(tmp_path / "v").encode("unable")


def test_capitals_where_the_file_keeps_them(tmp_path):
    """A cased vocabulary has no token for A here."""
    assert [1] == bert(tmp_path / "v", **{"normalizer.lowercase": False}).encode_bare("A")


def test_decoding(tmp_path):
    """A token that begins a word has its blank."""
    assert " unable a" == bert(tmp_path / "v").decode([2, 4, 5, 6, 3])


def test_no_unknown_token(tmp_path):
    """A file that names none, where 100 is none either, is refused."""
    path = write_vocab(tmp_path / "v", "bert", TOKENS, types=CONTROL)
    with pytest.raises(GGUFError, match="unknown_token_id is missing"):
        open_tokenizer(path)

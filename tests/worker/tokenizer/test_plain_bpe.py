"""BPE over characters, with byte fallback."""

import pytest
from gguf import TokenType
from hypothesis import given
from hypothesis import strategies as st

from worker.errors import RowError

from .vocab_file import BLANK, open_tokenizer, write_vocab

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["h", "i", BLANK, f"{BLANK}h", f"{BLANK}hi", "\n", "\n\n", "\u00e9"]


def gemma4(path, tokens, merges):
    """A tokenizer of some tokens, and BOS as the last."""
    types = {"<bos>": TokenType.CONTROL, **dict.fromkeys(BYTES, TokenType.BYTE)}
    keys = {"tokenizer.ggml.bos_token_id": len(tokens)}
    tokens = [*tokens, "<bos>"]
    return open_tokenizer(
        write_vocab(path, "gemma4", tokens, types=types, merges=merges, keys=keys)
    )


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer of bytes, eight more tokens and three merges."""
    merges = [f"{BLANK} h", f"{BLANK}h i", "\n \n"]
    return gemma4(tmp_path_factory.mktemp("plain") / "v.gguf", [*BYTES, *WORDS], merges)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" hi", [260]),
        ("hi hi", [256, 257, 260]),
        ("\n\n\n", [262, 261]),
        ("\u00e9\u00e8", [263, 0xC3, 0xA8]),
        ("<0x41>", [*b"<0x41>"]),
    ],
)
def test_ids(tokenizer, text, expected):
    """Merges, blanks, line breaks, bytes of what is no token; a byte token's spelling is text."""
    assert expected == tokenizer.encode_bare(text)


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(tokenizer, text):
    """Every text is what its ids decode to; U+2581 becomes the blank that it stands for."""
    assert text.replace(BLANK, " ") == tokenizer.decode(tokenizer.encode_bare(text))


def test_a_character_without_bytes(tmp_path):
    """A vocabulary without bytes refuses what it has no token for, and drops nothing."""
    tokenizer = gemma4(tmp_path / "v", ["a", "aa", *BYTES[:3]], ["a a"])
    with pytest.raises(RowError, match=r"U\+0062"):
        tokenizer.encode("ab")

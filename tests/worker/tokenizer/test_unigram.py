"""Unigram segmentation."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter, TokenType
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import GGUFError

from .vocab_file import BLANK, open_tokenizer

SPECIAL = {"<pad>": TokenType.CONTROL, "</s>": TokenType.CONTROL, "<unk>": TokenType.UNKNOWN}


def unigram(path, scored, *, types=None, charsmap=None, **keys):
    """A tokenizer of three special tokens and tokens with scores."""
    tokens = [*SPECIAL, *scored]
    writer = GGUFWriter(path, "t5")
    writer.add_tokenizer_model("t5")
    writer.add_token_list(tokens)
    kinds = {**SPECIAL, **(types or {})}
    writer.add_token_types([kinds.get(token, TokenType.NORMAL) for token in tokens])
    writer.add_token_scores([0.0] * len(SPECIAL) + list(scored.values()))
    for key, value in keys.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    if charsmap is not None:
        writer.add_precompiled_charsmap(charsmap)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return open_tokenizer(path)


def naive_best(text, scores, unknown):
    """The greatest sum over all ways to cut the text into tokens and unknown characters."""
    best = [0.0] + [float("-inf")] * len(text)
    for end in range(1, len(text) + 1):
        for start in range(end):
            piece = text[start:end]
            if piece in scores or (end == start + 1 and piece not in scores):
                best[end] = max(best[end], best[start] + scores.get(piece, unknown))
    return best[-1]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=4),
        st.sampled_from([-8.0, -4.0, -2.0, -1.0]),
        min_size=1,
        max_size=15,
    ),
    st.text("abcd", min_size=1, max_size=16),
)
def test_the_best_cut_as_the_naive_twin(scores, text):
    """The sum of scores is the greatest there is, and unknown characters in a row are one token."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = unigram(Path(folder) / "v.gguf", scores)
        ids = tokenizer.encode_bare(text)
        unknown = min(scores.values()) - 10.0
        values = [*scores.values()]
        pieces = [[*scores][i - 3] for i in ids if i != 2]
        gaps = len(text) - sum(map(len, pieces))
        total = sum(values[i - 3] for i in ids if i != 2) + gaps * unknown
        assert naive_best(text, scores, unknown) == total
        assert (2, 2) not in pairwise(ids)


WORDS = {"a": -1.0, "b": -1.0, BLANK: -2.0, f"{BLANK}a": -1.5}


@pytest.mark.parametrize(
    ("keys", "text", "expected"),
    [
        ({}, "a  b", [3, 5, 5, 4]),
        ({"add_space_prefix": True}, "a b", [6, 5, 4]),
        ({"add_space_prefix": True}, " a", [5, 6]),
        ({"remove_extra_whitespaces": True}, "  a   b ", [6, 5, 4]),
        ({"remove_extra_whitespaces": True}, "   ", []),
    ],
)
def test_blanks(tmp_path, keys, text, expected):
    """Blanks are kept, put in front, or merged, as the file says."""
    assert expected == unigram(tmp_path / "v", WORDS, **keys).encode_bare(text)


def test_eos_is_added_and_user_defined_tokens_come_first(tmp_path):
    """EOS is the family's default; a user-defined token is found in any text."""
    types = {"ab": TokenType.USER_DEFINED}
    tokenizer = unigram(tmp_path / "v", {**WORDS, "ab": -50.0}, types=types)
    assert [3, 7, 1] == tokenizer.encode("aab")


def packed(base, label, leaf=False):
    """A node of a double array."""
    return (base << 10) | (0x100 if leaf else 0) | label


def charsmap():
    """A map of one entry: B becomes a."""
    # The root's children lie at 256 ^ label; B's value at 512 ^ that node.
    trie = np.zeros(1024, np.uint32)
    trie[0] = packed(256, 0)
    node = 256 ^ ord("B")
    trie[node] = packed(512, ord("B"), leaf=True)
    trie[node ^ 512] = 1 << 31
    blob = trie.tobytes()
    return len(blob).to_bytes(4, "little") + blob + b"a\0"


def test_characters_are_mapped(tmp_path):
    """The file's map is applied before the text is cut; other characters stay."""
    tokenizer = unigram(tmp_path / "v", WORDS, charsmap=charsmap())
    assert [3, 3, 4, 2] == tokenizer.encode_bare("aBb\u00e9")


@pytest.mark.parametrize(
    "blob", [b"\0\0\0\0a\0", b"\xff\xff\xff\xff" + bytes(64), charsmap()[:-1], b"\x04\0\0\0abcde\0"]
)
def test_a_map_that_leads_outside(tmp_path, blob):
    """A map that is cut off or points outside is refused; the key is named."""
    if blob == b"\x04\0\0\0abcde\0":
        assert unigram(tmp_path / "v", WORDS, charsmap=blob).encode_bare("a") == [3]
        return
    with pytest.raises(GGUFError, match="precompiled_charsmap is no sound map"):
        unigram(tmp_path / "v", WORDS, charsmap=blob)


def test_a_map_without_end(tmp_path):
    """A node that is its own child is refused in bounded time."""
    trie = np.zeros(512, np.uint32)
    trie[0] = packed(256, 0)
    trie[256 ^ 7] = packed(7, 7)  # its children lie at 256 ^ label
    blob = (4 * 512).to_bytes(4, "little") + trie.tobytes() + b"a\0"
    with pytest.raises(GGUFError, match="beginnings of entries, or longer"):
        unigram(tmp_path / "v", WORDS, charsmap=blob)

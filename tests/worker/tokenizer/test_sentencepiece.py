"""SentencePiece-style BPE from scores."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from gguf import GGUFWriter, TokenType
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.errors import GGUFError, RowError

from .vocab_file import BLANK, open_tokenizer, write_vocab

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def sentencepiece(path, scored, *, bytes_too=True, **keys):
    """A tokenizer of three special tokens, perhaps 256 byte tokens, and tokens with scores."""
    spelled = BYTES if bytes_too else []
    tokens = [*SPECIAL, *spelled, *scored]
    types = dict.fromkeys(spelled, TokenType.BYTE)
    types |= {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    scores = [0.0] * (len(SPECIAL) + len(spelled)) + list(scored.values())
    keys = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    write_vocab(path, "llama", tokens, types=types, scores=scores, keys=keys)
    return open_tokenizer(path)


def naive_merge(text, scores):
    """Merge the best pair, the leftmost among equals, until none is a token."""
    pieces = list(text)
    while True:
        merged = [
            (-scores[a + b], i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in scores
        ]
        if not merged:
            return pieces
        _, place = min(merged)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(f"ab{BLANK}", min_size=1, max_size=5),
        st.sampled_from([-3.0, -2.0, -1.0, 0.0]),
        max_size=20,
    ),
    st.text("ab ", min_size=1, max_size=24),
)
def test_merges_like_the_naive_twin(scores, text):
    """Also with equal scores, blanks inside tokens and characters that are no tokens."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = sentencepiece(Path(folder) / "v.gguf", scores, add_space_prefix=False)
        place = {token: len(SPECIAL) + 256 + i for i, token in enumerate(scores)}
        expected = []
        for piece in naive_merge(text.replace(" ", BLANK), scores):
            spelled = [len(SPECIAL) + byte for byte in piece.encode()]
            expected += [place[piece]] if piece in place else spelled
        assert expected == tokenizer.encode_bare(text)
        assert expected == tokenizer.encode_bare(text)  # now from the cache of words


@pytest.mark.parametrize(
    ("add", "text", "expected"), [(True, "a", [260]), (False, "a", [259]), (True, " a", [261, 260])]
)
def test_blank_in_front(tmp_path, add, text, expected):
    """A text gets a blank in front where the file says so, even if it starts with one."""
    scores = {"a": -1.0, f"{BLANK}a": -2.0, BLANK: -3.0}
    tokenizer = sentencepiece(tmp_path / "v.gguf", scores, add_space_prefix=add)
    assert expected == tokenizer.encode_bare(text)


def test_bos_is_added_unless_the_file_says_no(tmp_path):
    """The family's default is BOS in front, with id 1 where the file names none."""
    assert [1, 259] == sentencepiece(tmp_path / "a", {"a": 0.0}, add_space_prefix=False).encode("a")
    without = sentencepiece(tmp_path / "b", {"a": 0.0}, add_space_prefix=False, add_bos_token=False)
    assert [259] == without.encode("a")
    both = sentencepiece(tmp_path / "c", {"a": 0.0}, add_space_prefix=False, add_eos_token=True)
    assert [1, 259, 2] == both.encode("a")


def test_control_and_byte_tokens_never_come_from_merging(tmp_path):
    """Text that spells a control or byte token stays text though merges could make it."""
    scores = {
        "<": -1.0,
        "s": -2.0,
        ">": -3.0,
        "<s": 9.0,
        "0": 0.0,
        "x": 0.0,
        "A": 0.0,
        "<0x0A": 1.0,
    }
    tokenizer = sentencepiece(tmp_path / "v.gguf", scores, add_space_prefix=False)
    assert [262, 261] == tokenizer.encode_bare("<s>")
    assert 13 not in tokenizer.encode_bare("<0x0A>")


def test_a_character_without_token_and_bytes_is_unknown(tmp_path):
    """Without byte tokens a character outside the vocabulary is the unknown token."""
    tokenizer = sentencepiece(tmp_path / "v", {"a": 0.0}, bytes_too=False, add_space_prefix=False)
    assert [3, 0, 3] == tokenizer.encode_bare("a\u20aca")


def test_a_character_without_any_token_fails_the_row(tmp_path):
    """With no unknown token either, the row fails and names the character."""
    write_vocab(
        tmp_path / "v", "llama", ["a"], scores=[0.0], keys={"tokenizer.ggml.add_bos_token": False}
    )
    with pytest.raises(RowError, match=r"U\+2581|U\+20AC"):
        open_tokenizer(tmp_path / "v").encode("\u20ac")


def test_pieces(tmp_path):
    """Blanks come back, byte tokens are bytes, control tokens have no text."""
    tokenizer = sentencepiece(tmp_path / "v.gguf", {f"{BLANK}a": 0.0})
    assert [b" a", b"\xe2", b""] == [tokenizer.piece(i) for i in (259, 3 + 0xE2, 1)]
    assert " a\u20ac" == tokenizer.decode([259, 3 + 0xE2, 3 + 0x82, 3 + 0xAC])


def test_a_leading_blank_of_a_completion_is_kept(tmp_path):
    """A completion goes on from its prompt, so its first blank is part of the text."""
    assert " a" == sentencepiece(tmp_path / "v.gguf", {f"{BLANK}a": 0.0}).decode([259])


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (None, r"v\.gguf: key tokenizer\.ggml\.scores is missing"),
        ([0.0], r"tokenizer\.ggml\.scores has 1 entries, expected 2"),
        ([0.0, float("nan")], r"tokenizer\.ggml\.scores, entry 1 is nan"),
    ],
)
def test_broken_scores(tmp_path, scores, message):
    """Scores that are missing, too few or no numbers are refused with file and key."""
    write_vocab(tmp_path / "v.gguf", "llama", ["a", "b"], scores=scores)
    with pytest.raises(GGUFError, match=message):
        open_tokenizer(tmp_path / "v.gguf")


def test_a_long_run_is_merged(tmp_path):
    """A word of 100,000 letters, past any cache, is merged like a short one."""
    tokenizer = sentencepiece(tmp_path / "v", {"a": -2.0, "aa": -1.0}, add_space_prefix=False)
    assert [260] * 50_000 == tokenizer.encode_bare("a" * 100_000)


def test_a_file_without_token_types(tmp_path):
    """Byte tokens are known by their form and special tokens by their ids."""
    writer = GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*SPECIAL, *BYTES, "a"])
    writer.add_token_scores([0.0] * 260)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = open_tokenizer(tmp_path / "v.gguf")
    assert [1, 259, 3 + 0xC3, 3 + 0xA9] == tokenizer.encode("aé")
    assert "aé" == tokenizer.decode([1, 259, 3 + 0xC3, 3 + 0xA9, 2])

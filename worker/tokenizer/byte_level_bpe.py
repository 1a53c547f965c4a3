"""Byte-level BPE, the ``gpt2`` model of GGUF files, on the tokenizers library."""

from collections.abc import Iterator

import tokenizers
from gguf.constants import Keys
from tokenizers import models, pre_tokenizers

from worker.errors import GGUFError, RowError, UnsupportedModelError
from worker.gguf.metadata import Metadata
from worker.gguf.wording import shown

from .kept_strings import KeptStrings
from .pre_tokenizer import PRE_TOKENIZERS, PreTokenizer
from .vocabulary import Vocabulary


def _byte_alphabet() -> dict[str, int]:
    """Map GPT-2's 256 printable characters to the bytes they stand for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_alphabet()
# Bytes that no UTF-8 text contains; a vocabulary may leave them out.
_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


class ByteLevelBPE:
    """Encodes text between special tokens, and gives the bytes of tokens.

    Attributes:
        add_bos: the family's default.
    """

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings) -> None:
        """Build the merges.

        Raises:
            UnsupportedModelError: the pre-tokenizer is not known.
            GGUFError: merges and vocabulary do not fit together.
        """
        pre_tokenizer = _pre_tokenizer(metadata)
        self.add_bos = pre_tokenizer.add_bos
        self._vocabulary = vocabulary
        self._missing_bytes = (
            frozenset(byte for char, byte in _BYTES.items() if char not in vocabulary.ids)
            - _NEVER_IN_UTF8
        )
        merges = kept.get("merges", lambda: list(_merges(metadata, vocabulary)))
        self._encoder = tokenizers.Tokenizer(
            models.BPE(
                # Control tokens must not come out of text, by no merge and no whole word.
                vocab=vocabulary.ids_without(vocabulary.control),
                merges=list(zip(merges[::2], merges[1::2], strict=True)),
                ignore_merges=pre_tokenizer.ignore_merges,
            )
        )
        self._encoder.pre_tokenizer = _words(pre_tokenizer)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Encode text that holds no special token; what stands before it makes no difference.

        Raises:
            RowError: the vocabulary lacks a byte of the text.
        """
        if self._missing_bytes:
            self._check_bytes(text)
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        byte = self._vocabulary.byte_of.get(token_id)
        if byte is not None:
            return bytes([byte])
        text = self._vocabulary.tokens[token_id]
        try:
            return bytes([_BYTES[char] for char in text])
        except KeyError:
            return text.encode()  # not in the byte alphabet: the text stands for itself

    def _check_bytes(self, text: str) -> None:
        lacking = self._missing_bytes.intersection(text.encode())
        if lacking:
            raise RowError(
                f"the prompt has the byte 0x{min(lacking):02X}, for which the model's vocabulary "
                "has no token; leave the character out"
            )


def _pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    name = metadata.text(Keys.Tokenizer.PRE, "default")
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"{metadata.path}: key {Keys.Tokenizer.PRE} is {shown(name)!r}; supported: "
            f"{', '.join(sorted(PRE_TOKENIZERS))}; take a model with one of these"
        )
    return PRE_TOKENIZERS[name]


def _words(pre_tokenizer: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    splits = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        for pattern in pre_tokenizer.patterns
    ]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, to_bytes])


def _merges(metadata: Metadata, vocabulary: Vocabulary) -> Iterator[str]:
    """Give left and right of the merges in order of rank, without those of a control token."""
    ids = vocabulary.ids
    for rank, merge in enumerate(metadata.strings(Keys.Tokenizer.MERGES)):
        pair = _split_merge(merge, vocabulary)
        if pair is None:
            raise GGUFError(
                f"{metadata.path}: key {Keys.Tokenizer.MERGES}, entry {rank} is {shown(merge)!r}, "
                "expected two tokens and a blank between them whose joined text is a token of "
                f"{Keys.Tokenizer.LIST}; convert the model again"
            )
        left, right = pair
        if vocabulary.control.isdisjoint((ids[left], ids[right], ids[left + right])):
            yield from pair


def _split_merge(merge: str, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Find the blank that parts a merge; either part may hold blanks itself."""
    ids = vocabulary.ids
    blank = merge.find(" ", 1)
    while blank != -1:
        left, right = merge[:blank], merge[blank + 1 :]
        if left in ids and right in ids and left + right in ids:
            return left, right
        blank = merge.find(" ", blank + 1)
    return None

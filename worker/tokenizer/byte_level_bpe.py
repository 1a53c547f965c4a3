"""Byte-level BPE, the ``gpt2`` model of GGUF files, on the tokenizers library."""

import tokenizers
from tokenizers import models, pre_tokenizers

from worker.errors import RowError
from worker.gguf.metadata import Metadata

from .byte_alphabet import BYTE_ALPHABET, from_byte_alphabet
from .kept_strings import KeptStrings
from .library_encoder import encode_text
from .merges import read_merges
from .pre_tokenizer import PreTokenizer
from .vocabulary import Vocabulary

# Bytes that no UTF-8 text contains; a vocabulary may leave them out.
_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


class ByteLevelBPE:
    """Encodes text between special tokens, and gives the bytes of tokens.

    Attributes:
        add_bos, add_eos, needs_bos, keeps_all: see ``EncodingModel``.
    """

    keeps_all = True
    add_eos = False
    needs_bos = False

    def __init__(
        self,
        metadata: Metadata,
        vocabulary: Vocabulary,
        kept: KeptStrings,
        pre_tokenizer: PreTokenizer,
    ) -> None:
        """Build the merges.

        Raises:
            GGUFError: merges and vocabulary do not fit together.
        """
        self.add_bos = pre_tokenizer.add_bos
        self._vocabulary = vocabulary
        self._missing_bytes = (
            frozenset(byte for char, byte in BYTE_ALPHABET.items() if char not in vocabulary.ids)
            - _NEVER_IN_UTF8
        )
        self._encoder = tokenizers.Tokenizer(
            models.BPE(
                # Control tokens must not come out of text, by no merge and no whole word.
                vocab=vocabulary.ids_without(vocabulary.control),
                merges=read_merges(metadata, vocabulary, kept),
                ignore_merges=pre_tokenizer.ignore_merges,
            )
        )
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._encoder.pre_tokenizer = pre_tokenizers.Sequence([*pre_tokenizer.splits(), to_bytes])

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token; what stands before it makes no difference.

        Raises:
            RowError: the vocabulary lacks a byte of the text.
        """
        if self._missing_bytes:
            self._check_bytes(text)
        return encode_text(self._encoder, text)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        byte = self._vocabulary.byte_of.get(token_id)
        if byte is not None:
            return bytes([byte])
        return from_byte_alphabet(self._vocabulary.tokens[token_id])

    def _check_bytes(self, text: str) -> None:
        lacking = self._missing_bytes.intersection(text.encode())
        if lacking:
            raise RowError(
                f"the prompt has the byte 0x{min(lacking):02X}, for which the model's vocabulary "
                "has no token; leave the character out"
            )

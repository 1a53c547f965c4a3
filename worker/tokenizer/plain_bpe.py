"""BPE over characters as they are, the ``gemma4`` model of GGUF files, on the tokenizers library.

Blanks are U+2581 and a character that is no token is spelled in byte tokens, as in SentencePiece;
but merges have ranks and are applied within a line (llama.cpp's ``LLAMA_VOCAB_PRE_TYPE_GEMMA4``).
"""

import tokenizers
from tokenizers import models, pre_tokenizers

from worker.gguf.metadata import Metadata

from .kept_strings import KeptStrings
from .library_encoder import encode_text
from .merges import read_merges
from .pre_tokenizer import PreTokenizer
from .vocabulary import BLANK, Vocabulary


class PlainBPE:
    """Encodes text between special tokens, and gives the bytes of tokens.

    Attributes:
        add_bos, add_eos, needs_bos, keeps_all: see ``EncodingModel``.
    """

    keeps_all = True
    add_eos = False

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
        # Early files of Gemma 4 say that none is added.
        self.add_bos = self.needs_bos = pre_tokenizer.add_bos
        self._vocabulary = vocabulary
        self._lacks_bytes = len(set(vocabulary.byte_of.values())) < 256
        self._encoder = tokenizers.Tokenizer(
            models.BPE(
                # Control tokens must not come out of text, by no merge and no whole word.
                vocab=vocabulary.ids_without(vocabulary.control),
                merges=read_merges(metadata, vocabulary, kept),
                ignore_merges=pre_tokenizer.ignore_merges,
                byte_fallback=True,
            )
        )
        self._encoder.pre_tokenizer = pre_tokenizers.Sequence(pre_tokenizer.splits())

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token; what stands before it makes no difference.

        Raises:
            RowError: the vocabulary has neither a character of the text nor its bytes.
        """
        text = text.replace(" ", BLANK)
        if self._lacks_bytes:
            self._check_characters(text)
        return encode_text(self._encoder, text)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        return self._vocabulary.blank_piece(token_id)

    def _check_characters(self, text: str) -> None:
        spelled = frozenset(self._vocabulary.byte_of.values())
        for character in sorted(set(text)):
            if character not in self._vocabulary.ids and not spelled.issuperset(character.encode()):
                raise self._vocabulary.lacks(character)

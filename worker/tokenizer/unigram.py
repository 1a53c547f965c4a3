"""Unigram segmentation, the ``t5`` model of GGUF files.

Text is normalised by the file's map of characters, blanks become U+2581, and of all ways to cut the
text into tokens the one with the greatest sum of scores is taken (Kudo 2018; llama.cpp's
``llm_tokenizer_ugm``). Normalising loses what it replaces: decoding gives the normalised text.
"""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from gguf.constants import Keys, TokenType
from numpy.typing import NDArray

from worker.errors import GGUFError
from worker.gguf.metadata import Metadata

from .character_map import CharacterMap
from .kept_strings import KeptStrings
from .vocabulary import BLANK, Vocabulary, check_length

if TYPE_CHECKING:
    from .best_segmentation import BestSegmentation

_UNKNOWN_PENALTY = np.float32(10)
_MATCHED = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)


class Unigram:
    """Encodes text between special tokens, and gives the bytes of tokens.

    Attributes:
        add_bos, add_eos, needs_bos, keeps_all: see ``EncodingModel``.
    """

    add_bos = False
    keeps_all = False
    add_eos = True
    needs_bos = False

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings) -> None:
        """Read scores and settings.

        Raises:
            GGUFError: a key is missing or wrong, or there is no unknown token.
        """
        self._vocabulary = vocabulary
        self._space_prefix = metadata.boolean(Keys.Tokenizer.ADD_PREFIX, False)
        self._merge_blanks = metadata.boolean(Keys.Tokenizer.REMOVE_EXTRA_WS, False)
        blob = metadata.numbers(Keys.Tokenizer.PRECOMPILED_CHARSMAP, np.empty(0, np.uint8))
        self._normalise = CharacterMap.from_blob(metadata.path, blob.astype(np.uint8))
        self._scores = _scores(metadata, vocabulary)
        self._unknown = unknown_id(metadata, vocabulary)

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token; each such text gets its blank in front."""
        spaced = self._spaced(self._normalise(text))
        return self._encoder.encode(spaced) if spaced else []

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        return self._vocabulary.blank_piece(token_id)

    def _spaced(self, text: str) -> str:
        if self._merge_blanks:
            return "".join(f"{BLANK}{word}" for word in text.split(" ") if word)
        words = text.lstrip(" ")
        front = BLANK if self._space_prefix and words else ""
        return BLANK * (len(text) - len(words)) + front + words.replace(" ", BLANK)

    @cached_property
    def _encoder(self) -> "BestSegmentation":
        # Imported here: it needs compiled code, which who never encodes can do without.
        from .best_segmentation import BestSegmentation

        types, tokens = self._vocabulary.types, self._vocabulary.tokens
        matched = np.flatnonzero(np.isin(types, _MATCHED)).tolist()
        ids = {tokens[i]: i for i in matched if i not in self._vocabulary.control}
        normal = self._scores[types == TokenType.NORMAL]
        least = normal.min() if normal.size else np.float32(0)
        scores = np.where(types == TokenType.USER_DEFINED, np.float32(0), self._scores)
        return BestSegmentation(
            ids, scores.astype(np.float64), self._unknown, float(least - _UNKNOWN_PENALTY)
        )


def unknown_id(metadata: Metadata, vocabulary: Vocabulary) -> int:
    """Give the unknown token.

    Raises:
        GGUFError: there is none.
    """
    if vocabulary.special.unk is None:
        raise GGUFError(
            f"{metadata.path}: key {Keys.Tokenizer.UNK_ID} is missing, and this kind of tokenizer "
            "needs a token for what it has none for; convert the model again"
        )
    return vocabulary.special.unk


def _scores(metadata: Metadata, vocabulary: Vocabulary) -> NDArray[np.float32]:
    scores = metadata.numbers(Keys.Tokenizer.SCORES)
    check_length(metadata, Keys.Tokenizer.SCORES, len(scores), len(vocabulary))
    if not np.isfinite(scores).all():
        token_id = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise GGUFError(
            f"{metadata.path}: key {Keys.Tokenizer.SCORES}, entry {token_id} is "
            f"{scores[token_id]}, expected a finite number; convert the model again"
        )
    return scores.astype(np.float32)

"""SentencePiece-style BPE, the ``llama`` model of GGUF files.

The vocabulary has scores and no merges: again and again the two neighbours whose joined text is
the token of the highest score become that token, the leftmost pair first among equals; what is
no token in the end is spelled in byte tokens (Kudo and Richardson 2018; llama.cpp's
``llm_tokenizer_spm``).

It does not run on the tokenizers library, whose BPE ranks each merge by itself. That cannot
express equal ranks (the two splits of one token, tokens of one score), nor merges of characters
that are no tokens themselves. This one starts at once, too: no merges to be worked out.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from gguf.constants import Keys
from numpy.typing import NDArray

from worker.errors import GGUFError
from worker.gguf.metadata import Metadata

from .kept_strings import KeptStrings
from .vocabulary import BLANK, Vocabulary, check_length

if TYPE_CHECKING:
    from .piece_encoder import PieceEncoder


class SentencePiece:
    """Encodes text between special tokens, and gives the bytes of tokens.

    ``tokenizer.ggml.remove_extra_whitespaces`` has no effect, as in llama.cpp.

    Attributes:
        add_bos, add_eos, needs_bos, keeps_all: see ``EncodingModel``.
    """

    add_bos = True
    keeps_all = True
    add_eos = False
    needs_bos = False

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings) -> None:
        """Read the scores.

        Raises:
            GGUFError: no scores, not one a token, or not numbers.
        """
        self._vocabulary = vocabulary
        self._space_prefix = metadata.boolean(Keys.Tokenizer.ADD_PREFIX, True)
        self._costs = _costs(metadata, len(vocabulary))
        self._ids = vocabulary.ids_without(vocabulary.control | vocabulary.byte_of.keys())
        spanned = kept.get("characters that blanks follow", lambda: _spanned(self._ids))
        self._word_start = _word_start(spanned)

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token.

        Each such text gets a blank in front where the file says so
        (``tokenizer.ggml.add_space_prefix``), after a special token as at the start.

        Raises:
            RowError: the vocabulary has neither the character nor its bytes.
        """
        if self._space_prefix:
            text = f" {text}"
        text = text.replace(" ", BLANK)
        word_ends = [match.start() for match in self._word_start.finditer(text)]
        ids, lacking = self._encoder.encode(text, [*word_ends, len(text)])
        if lacking is not None:
            raise self._vocabulary.lacks(lacking)
        return ids

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        return self._vocabulary.blank_piece(token_id)

    @cached_property
    def _encoder(self) -> "PieceEncoder":
        # Imported here: it needs compiled code, which who never encodes can do without.
        from .piece_encoder import PieceEncoder

        byte_ids = {byte: token_id for token_id, byte in self._vocabulary.byte_of.items()}
        return PieceEncoder(self._ids, self._costs, byte_ids, self._vocabulary.special.unk)


def _costs(metadata: Metadata, count: int) -> NDArray[np.float64]:
    """Give minus the score of each token: the smallest item of a queue comes first."""
    scores = metadata.numbers(Keys.Tokenizer.SCORES)
    check_length(metadata, Keys.Tokenizer.SCORES, len(scores), count)
    costs = -scores.astype(np.float64)
    if np.isnan(costs).any():
        token_id = int(np.flatnonzero(np.isnan(costs))[0])
        raise GGUFError(
            f"{metadata.path}: key {Keys.Tokenizer.SCORES}, entry {token_id} is nan, expected a "
            "number; convert the model again"
        )
    return costs


def _spanned(ids: Mapping[str, int]) -> list[str]:
    """Find the characters that stand in front of a blank in some token."""
    return sorted({text[i - 1] for text in ids for i in range(1, len(text)) if text[i] == BLANK})


def _word_start(spanned: Sequence[str]) -> re.Pattern[str]:
    """Match in front of blanks where no token spans the place, so that no merge ever does.

    In most vocabularies a token has blanks at its start only; then words are encoded one by
    one, each with a short queue.
    """
    before = f"[^{''.join(map(re.escape, spanned))}]" if spanned else "(?s:.)"
    return re.compile(f"(?<={before})(?={BLANK})")

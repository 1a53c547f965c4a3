"""SentencePiece-style BPE, the ``llama`` model of GGUF files.

The vocabulary has scores and no merges: again and again the two neighbours whose joined text is
the token of the highest score become that token, the leftmost pair first among equals; what is
no token in the end is spelled in byte tokens (Kudo and Richardson 2018; llama.cpp's
``llm_tokenizer_spm``).

It does not run on the tokenizers library, whose BPE ranks each merge by itself. That cannot
express equal ranks (the two splits of one token, tokens of one score), nor merges of characters
that are no tokens themselves. This one starts at once, too: no merges to be worked out.
"""

import heapq
import re
from collections.abc import Mapping, Sequence

import numpy as np
from gguf.constants import Keys

from worker.errors import GGUFError
from worker.gguf.metadata import Metadata

from .kept_strings import KeptStrings
from .vocabulary import BLANK, Vocabulary, check_length

_WORD_CACHE_SIZE = 50_000
_CACHED_WORD_LENGTH = 64


class SentencePiece:
    """Encodes text between special tokens, and gives the bytes of tokens.

    ``tokenizer.ggml.remove_extra_whitespaces`` has no effect, as in llama.cpp.

    Attributes:
        add_bos, add_eos: the family's defaults.
    """

    add_bos = True
    add_eos = False

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings) -> None:
        """Read the scores.

        Raises:
            GGUFError: no scores, not one a token, or not numbers.
        """
        self._vocabulary = vocabulary
        self._space_prefix = metadata.boolean(Keys.Tokenizer.ADD_PREFIX, True)
        self._costs = _costs(metadata, len(vocabulary))
        self._byte_ids = {byte: token_id for token_id, byte in vocabulary.byte_of.items()}
        self._ids = vocabulary.ids_without(vocabulary.control | vocabulary.byte_of.keys())
        self._longest = max(map(len, self._ids), default=0)
        spanned = kept.get("characters that blanks follow", lambda: _spanned(self._ids))
        self._word_start = _word_start(spanned)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Encode text that holds no special token.

        Args:
            text: not empty.
            after_special: at the start or after a special token, where the model may want a
                blank in front (``tokenizer.ggml.add_space_prefix``).

        Raises:
            RowError: the vocabulary has neither the character nor its bytes.
        """
        if self._space_prefix and after_special:
            text = f" {text}"
        ids: list[int] = []
        for word in self._word_start.split(text.replace(" ", BLANK)):
            ids += self._encode_word(word)
        return ids

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        return self._vocabulary.blank_piece(token_id)

    def _encode_word(self, word: str) -> list[int]:
        ids = self._cache.get(word)
        if ids is None:
            ids = [token for piece in self._merge(word) for token in self._piece_ids(piece)]
            if len(word) <= _CACHED_WORD_LENGTH:
                if len(self._cache) >= _WORD_CACHE_SIZE:
                    self._cache.clear()
                self._cache[word] = ids
        return ids

    def _merge(self, text: str) -> list[str]:
        """Merge neighbours until no joined text is a token; give the pieces.

        A piece is known by where it starts. ``ends[start]`` is where it ends, 0 once it is
        part of the piece before; ``before[start]`` is where its left neighbour starts. The
        queue holds (cost, start, end) of texts that two neighbours made when they were put in.
        """
        size = len(text)
        ends = list(range(1, size + 1))
        before = list(range(-1, size - 1))
        queue: list[tuple[float, int, int]] = []
        for start in range(size - 1):
            self._offer(queue, text, start, start + 2)
        while queue:
            _, start, end = heapq.heappop(queue)
            middle = ends[start]
            if middle == 0 or middle >= size or ends[middle] != end:
                continue  # one of the two has been merged since
            ends[start], ends[middle] = end, 0
            if before[start] >= 0:
                self._offer(queue, text, before[start], end)
            if end < size:
                before[end] = start
                self._offer(queue, text, start, ends[end])
        return _pieces(text, ends)

    def _offer(self, queue: list[tuple[float, int, int]], text: str, start: int, end: int) -> None:
        if end - start <= self._longest:
            token_id = self._ids.get(text[start:end])
            if token_id is not None:
                heapq.heappush(queue, (self._costs[token_id], start, end))

    def _piece_ids(self, piece: str) -> Sequence[int]:
        token_id = self._ids.get(piece)
        if token_id is not None:
            return (token_id,)
        spelled = [self._byte_ids.get(byte) for byte in piece.encode()]
        found = [token_id for token_id in spelled if token_id is not None]
        if len(found) == len(spelled):
            return found
        if self._vocabulary.special.unk is not None:
            return (self._vocabulary.special.unk,)
        raise self._vocabulary.lacks(piece[0])


def _costs(metadata: Metadata, count: int) -> list[float]:
    """Give minus the score of each token: the smallest item of a heap comes first."""
    scores = metadata.numbers(Keys.Tokenizer.SCORES)
    check_length(metadata, Keys.Tokenizer.SCORES, len(scores), count)
    costs = -scores.astype(np.float64)
    if np.isnan(costs).any():
        token_id = int(np.flatnonzero(np.isnan(costs))[0])
        raise GGUFError(
            f"{metadata.path}: key {Keys.Tokenizer.SCORES}, entry {token_id} is nan, expected a "
            "number; convert the model again"
        )
    costs_list: list[float] = costs.tolist()
    return costs_list


def _spanned(ids: Mapping[str, int]) -> list[str]:
    """Find the characters that stand in front of a blank in some token."""
    return sorted({text[i - 1] for text in ids for i in range(1, len(text)) if text[i] == BLANK})


def _word_start(spanned: Sequence[str]) -> re.Pattern[str]:
    """Match in front of blanks where no token spans the place, so that no merge ever does.

    In most vocabularies a token has blanks at its start only; then words are encoded one by
    one, and a word met before comes from the cache.
    """
    before = f"[^{''.join(map(re.escape, spanned))}]" if spanned else "(?s:.)"
    return re.compile(f"(?<={before})(?={BLANK})")


def _pieces(text: str, ends: list[int]) -> list[str]:
    pieces = []
    start = 0
    while start < len(text):
        pieces.append(text[start : ends[start]])
        start = ends[start]
    return pieces

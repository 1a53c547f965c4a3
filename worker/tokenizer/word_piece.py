"""WordPiece, the ``bert`` model of GGUF files, on the tokenizers library.

Words are cut at blanks and punctuation and lower-cased as the file says; in a word the longest
token comes first (Devlin et al. 2019). A word that cannot be spelled, or is longer than 100
characters, is one unknown token. Normalising loses what it replaces.
"""

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from worker.gguf.metadata import Metadata

from .kept_strings import KeptStrings
from .library_encoder import encode_text
from .unigram import unknown_id
from .vocabulary import BLANK, Vocabulary

_LOWERCASE = "tokenizer.ggml.normalizer.lowercase"
_STRIP_ACCENTS = "tokenizer.ggml.normalizer.strip_accents"
_INSIDE = "##"  # how the library spells tokens that go on with a word


class WordPiece:
    """Encodes text between special tokens, and gives the bytes of tokens.

    In the file a token that begins a word has U+2581 in front, one that goes on has nothing.

    Attributes:
        add_bos, add_eos, needs_bos, keeps_all: see ``EncodingModel``; they are [CLS] and [SEP].
    """

    add_bos = True
    keeps_all = False
    add_eos = True
    needs_bos = False

    def __init__(self, metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings) -> None:
        """Build the words.

        Raises:
            GGUFError: a key is wrong, or there is no unknown token.
        """
        self._vocabulary = vocabulary
        unknown = vocabulary.tokens[unknown_id(metadata, vocabulary)]
        lowercase = metadata.boolean(_LOWERCASE, True)
        vocab = {
            text.removeprefix(BLANK) if text.startswith(BLANK) else f"{_INSIDE}{text}": token_id
            for text, token_id in vocabulary.ids_without(vocabulary.control).items()
        }
        vocab[unknown] = vocabulary.ids[unknown]
        self._encoder = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
        self._encoder.normalizer = normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=metadata.boolean(_STRIP_ACCENTS, lowercase)
        )
        self._encoder.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token; what stands before it makes no difference."""
        return encode_text(self._encoder, text)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        return self._vocabulary.blank_piece(token_id)

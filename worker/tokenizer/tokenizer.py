"""Text to token ids and back, by the vocabulary of a GGUF file."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import pairwise

from gguf.constants import Keys, TokenType

from worker.gguf.metadata import Metadata

from .added_tokens import AddedTokens
from .detokenizer import Detokenizer
from .encoding_model import EncodingModel, default_ids, encoding_model, tokenizer_model
from .kept_strings import KeptStrings
from .rendered_prompt import RenderedPrompt
from .template_sources import chat_templates
from .token_matcher import TokenMatcher
from .vocabulary import Vocabulary


class SpecialText(Enum):
    """What becomes of the text of a control token, e.g. ``<|im_end|>``, in text to encode."""

    TEXT = "text"
    """It is text like any other."""
    PARSE = "parse"
    """It becomes the control token."""


_C_SPACE = " \t\n\v\f\r"


class Tokenizer:
    """Encodes and decodes text for one model.

    There is no normalisation: other bytes are other ids. Tokens of type user-defined are found
    in any text; control tokens only where a template writes them or parsing is asked for.

    Attributes:
        vocab_size: number of tokens.
        bos_id, eos_id: begin and end of text, None where the file names none.
        end_ids: every token that ends a completion, see ``end_tokens``.
        chat_templates: the file's own templates by name, ``default`` the usual one.
        name: the model file, for messages.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        model: EncodingModel,
        *,
        added: AddedTokens,
        chat_templates: Mapping[str, str],
        right_strip: Collection[int] = (),
        left_strip: Collection[int] = (),
    ) -> None:
        """Put a tokenizer together; see ``from_metadata`` and ``checkpoint_tokenizer``.

        Args:
            vocabulary: tokens by id and text.
            model: encodes the text between special tokens.
            added: what goes around a prompt.
            chat_templates: Jinja sources by name.
            right_strip: tokens that swallow the white space after them.
            left_strip: tokens that swallow the white space before them.
        """
        self._vocabulary = vocabulary
        self._model = model
        self._added = added
        self.name = str(vocabulary.path)
        self.vocab_size = len(vocabulary)
        self.bos_id = vocabulary.special.bos
        self.eos_id = vocabulary.special.eos
        self.end_ids = vocabulary.end_ids
        self.chat_templates = chat_templates
        self.control_tokens = {vocabulary.tokens[i]: i for i in vocabulary.control}
        self._control = TokenMatcher(self.control_tokens)
        self._user_defined = TokenMatcher(vocabulary.user_defined)
        self._right_strip = frozenset(right_strip)
        self._left_strip = frozenset(left_strip)
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_metadata(cls, metadata: Metadata, *, tokenizer_pre: str | None = None) -> "Tokenizer":
        """Build the tokenizer of a model file.

        Args:
            metadata: of the model file.
            tokenizer_pre: name of a pre-tokenizer in place of the file's.

        Raises:
            UnsupportedModelError: another tokenizer model or pre-tokenizer.
            EngineConfigError: ``tokenizer_pre`` cannot be used with this file.
            GGUFError: a key is missing or wrong; the message names file and key.
        """
        kept = KeptStrings(metadata.identity)
        defaults = default_ids(metadata, tokenizer_model(metadata))
        vocabulary = Vocabulary.from_metadata(metadata, defaults, kept)
        model = encoding_model(metadata, vocabulary, kept, tokenizer_pre)
        tokenizer = cls(
            vocabulary,
            model,
            added=AddedTokens.from_metadata(metadata, vocabulary.special, model),
            chat_templates=chat_templates(metadata),
            right_strip=_right_strip(metadata, vocabulary),
        )
        kept.keep()
        return tokenizer

    @property
    def bos_token(self) -> str | None:
        """The text of BOS, as chat templates spell it."""
        return None if self.bos_id is None else self._vocabulary.tokens[self.bos_id]

    @property
    def eos_token(self) -> str | None:
        """The text of EOS, as chat templates spell it."""
        return None if self.eos_id is None else self._vocabulary.tokens[self.eos_id]

    def encode(self, text: str, *, special: SpecialText = SpecialText.TEXT) -> list[int]:
        """Encode a text, with BOS and EOS where the file asks for them.

        Raises:
            RowError: the vocabulary cannot express the text.
        """
        return self._added.around(self.encode_bare(text, special=special), doubled=True)

    def encode_prompt(self, text: str, *, special: SpecialText) -> list[int]:
        """Encode a row's prompt: as ``encode``, but what it brings itself is not doubled.

        Raises:
            RowError: the vocabulary cannot express the text.
        """
        ids = self.encode_bare(text, special=special)
        return self._added.around(ids, doubled=special is SpecialText.TEXT)

    def encode_bare(self, text: str, *, special: SpecialText = SpecialText.TEXT) -> list[int]:
        """Encode text without BOS and EOS."""
        parse = special is SpecialText.PARSE
        return self._encode_parts(self._control.split(text) if parse else (text,))

    def encode_chat(self, prompt: RenderedPrompt) -> list[int]:
        """Encode a rendered template: its control tokens are parsed, those in messages are text.

        BOS is added unless the template wrote it, wherever; EOS never: a turn is open.

        Raises:
            RowError: the vocabulary cannot express the text.
        """
        text = prompt.marked
        prefix = self._added.prefix
        begun = bool(prefix) and text.startswith(self.bos_token or "")
        if begun:
            text = text.removeprefix(self.bos_token or "")
        parts = list(self._control.split(text))
        written = not begun and self.bos_id in parts
        ids = self._encode_parts(map(prompt.unguarded, parts), at_start=not begun)
        return [*(() if written else prefix), *ids]

    def fewest_tokens(self, text: str) -> int:
        """Give a lower bound of the tokens of a text, without encoding it."""
        if self._right_strip or self._left_strip or not self._model.keeps_all:
            return 0
        return len(text) // self._longest_token

    @cached_property
    def _longest_token(self) -> int:
        """Bytes of the longest token as it is spelled in the file, at least those it stands for."""
        return max(len(token.encode()) for token in self._vocabulary.tokens)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes a token adds to a text; control and unused tokens add none.

        Neither does an id above the vocabulary: embeddings may have more rows than there are
        tokens.
        """
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._find_piece(token_id)
        return piece

    def piece_text(self, token_id: int) -> str:
        """Give a token for display: control tokens by name, broken UTF-8 as U+FFFD."""
        if token_id in self._vocabulary.control:
            return self._vocabulary.tokens[token_id]
        return self.piece(token_id).decode("utf-8", "replace")

    def decode(self, token_ids: Sequence[int]) -> str:
        """Give the text of tokens that go on from a prompt.

        A leading blank is kept: prompt and completion joined are the whole text.
        """
        return b"".join(map(self.piece, token_ids)).decode("utf-8", "replace")

    def detokenizer(self) -> Detokenizer:
        """Start an incremental ``decode``."""
        return Detokenizer(self.piece)

    def _encode_parts(self, parts: Iterable[str | int], *, at_start: bool = True) -> list[int]:
        """Encode text and special tokens in turn; user-defined tokens are found in the text."""
        ids: list[int] = []
        for part, after in pairwise([*self._with_user_defined(parts), ""]):
            if isinstance(part, int):
                ids.append(part)
            elif text := self._stripped(part, ids[-1] if ids else None, after):
                ids += self._model.encode(text, at_start=at_start and not ids)
        return ids

    def _stripped(self, text: str, before: int | None, after: str | int) -> str:
        """Take off the white space that the tokens on both sides swallow."""
        if before in self._right_strip:
            text = text.lstrip(_C_SPACE)
        return text.rstrip(_C_SPACE) if after in self._left_strip else text

    def _with_user_defined(self, parts: Iterable[str | int]) -> Iterator[str | int]:
        for part in parts:
            if isinstance(part, int):
                yield part
            else:
                yield from self._user_defined.split(part)

    def _find_piece(self, token_id: int) -> bytes:
        vocabulary = self._vocabulary
        if token_id in vocabulary.control or not 0 <= token_id < len(vocabulary):
            return b""
        kind = vocabulary.types[token_id]
        if kind == TokenType.USER_DEFINED:
            return vocabulary.tokens[token_id].encode()
        if kind in (TokenType.NORMAL, TokenType.BYTE):
            return self._model.piece(token_id)
        return b""  # unused, or of a type that this format does not know


def _right_strip(metadata: Metadata, vocabulary: Vocabulary) -> frozenset[int]:
    """Find the tokens that swallow the white space after them.

    Files do not say. Phi-3's original tokenizer does it; like llama.cpp we know the model by its
    name.
    """
    name = metadata.text(Keys.General.NAME, "").lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    keep = {vocabulary.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
    return (vocabulary.control | frozenset(vocabulary.user_defined.values())) - keep

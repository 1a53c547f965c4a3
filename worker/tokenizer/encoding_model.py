"""What encodes the text between special tokens, by ``tokenizer.ggml.model``."""

from collections.abc import Callable, Mapping
from typing import Protocol

from gguf.constants import Keys

from worker.errors import EngineConfigError, UnsupportedModelError
from worker.gguf.metadata import Metadata
from worker.gguf.wording import shown

from .byte_level_bpe import ByteLevelBPE
from .kept_strings import KeptStrings
from .plain_bpe import PlainBPE
from .pre_tokenizer import PRE_TOKENIZERS, PreTokenizer
from .sentencepiece import SentencePiece
from .unigram import Unigram
from .vocabulary import Vocabulary
from .word_piece import WordPiece


class EncodingModel(Protocol):
    """What encodes the text between special tokens."""

    @property
    def add_bos(self) -> bool:
        """Whether BOS is added when the file does not say."""

    @property
    def add_eos(self) -> bool:
        """Whether EOS is added when the file does not say."""

    @property
    def needs_bos(self) -> bool:
        """Whether BOS is added even if the file says no."""

    @property
    def keeps_all(self) -> bool:
        """Whether every character of a text is in its tokens; normalising may drop some."""

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text between special tokens.

        Args:
            text: not empty; it holds no special token.
            at_start: whether nothing stands before it, not even a BOS that a template wrote.
        """

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""


_names = Keys.Tokenizer
_CLS_ID = "tokenizer.ggml.cls_token_id"
_BY_MERGES = frozenset({"gpt2", "gemma4"})
_OTHERS: Mapping[str, Callable[[Metadata, Vocabulary, KeptStrings], EncodingModel]] = {
    "bert": WordPiece,
    "llama": SentencePiece,
    "t5": Unigram,
}
_DEFAULT_IDS: Mapping[str, Mapping[str, int]] = {
    "bert": {_names.BOS_ID: 101, _names.EOS_ID: 102, _names.UNK_ID: 100},
    "llama": {_names.BOS_ID: 1, _names.EOS_ID: 2, _names.UNK_ID: 0},
    "t5": {_names.EOS_ID: 1, _names.UNK_ID: 2},
}


def tokenizer_model(metadata: Metadata) -> str:
    """Give the kind of tokenizer of a file.

    Raises:
        UnsupportedModelError: a kind that is not supported.
    """
    model = metadata.text(_names.MODEL)
    if model not in _BY_MERGES and model not in _OTHERS:
        raise UnsupportedModelError(
            f"{metadata.path}: key {_names.MODEL} is '{shown(model)}'; supported: "
            f"{', '.join(sorted({*_BY_MERGES, *_OTHERS}))}; take a model with one of these"
        )
    return model


def default_ids(metadata: Metadata, model: str) -> Mapping[str, int]:
    """Give what llama.cpp takes for ids that a file leaves out.

    For gpt2 it takes 11, Falcon's end of text and a common word elsewhere; such a file has no BOS
    and EOS here.
    """
    usual = _DEFAULT_IDS.get(model, {})
    if model == "bert":
        # Its own names: a text begins with CLS and ends with SEP.
        cls = metadata.integer(_CLS_ID, usual[_names.BOS_ID])
        sep = metadata.integer(_names.SEP_ID, usual[_names.EOS_ID])
        return {**usual, _names.BOS_ID: cls, _names.EOS_ID: sep}
    return usual


def encoding_model(
    metadata: Metadata,
    vocabulary: Vocabulary,
    kept: KeptStrings,
    tokenizer_pre: str | None,
) -> EncodingModel:
    """Build the part of a file's tokenizer that encodes text.

    Args:
        metadata: of the model file.
        vocabulary: of the model file.
        kept: of the model file.
        tokenizer_pre: name of the pre-tokenizer in place of the file's.

    Raises:
        UnsupportedModelError: the file's pre-tokenizer is not known.
        EngineConfigError: ``tokenizer_pre`` is not known, or given for a kind that has none.
        GGUFError: a key is missing or wrong.
    """
    model = tokenizer_model(metadata)
    if model in _BY_MERGES:
        pre_tokenizer = _pre_tokenizer(metadata, model, tokenizer_pre)
        by_merges = ByteLevelBPE if pre_tokenizer.byte_level else PlainBPE
        return by_merges(metadata, vocabulary, kept, pre_tokenizer)
    if tokenizer_pre is not None:
        raise EngineConfigError(
            f"tokenizer_pre is {tokenizer_pre!r}, but {metadata.path} has a {model} tokenizer, "
            "which knows no pre-tokenizer; leave it out"
        )
    return _OTHERS[model](metadata, vocabulary, kept)


def _pre_tokenizer(metadata: Metadata, model: str, given: str | None) -> PreTokenizer:
    known = ", ".join(sorted(PRE_TOKENIZERS))
    if given is not None:
        if given not in PRE_TOKENIZERS:
            raise EngineConfigError(f"tokenizer_pre is {given!r}; supported: {known}")
        return PRE_TOKENIZERS[given]
    # The gemma4 model knows one pre-tokenizer, whatever the file says.
    name = metadata.text(_names.PRE, "default") if model == "gpt2" else model
    if name not in PRE_TOKENIZERS:
        raise UnsupportedModelError(
            f"{metadata.path}: key {_names.PRE} is '{shown(name)}', a way to cut text into words "
            "that tokenmill does not know; take a model with a known one, or name the one to use "
            f"by tokenizer_pre: {known}"
        )
    return PRE_TOKENIZERS[name]

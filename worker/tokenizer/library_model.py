"""A tokenizer.json's own steps, for text between special tokens."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tokenizers

from worker.errors import UnsupportedModelError

from .byte_alphabet import from_byte_alphabet
from .library_encoder import encode_text
from .vocabulary import BLANK, Vocabulary

_INSIDE = "##"


class LibraryModel:
    """Encodes text between special tokens, and gives the bytes of tokens.

    Attributes:
        add_bos, add_eos, needs_bos: False; a folder says itself what is added.
        keeps_all: False; a folder may normalise.
    """

    add_bos = False
    keeps_all = False
    add_eos = False
    needs_bos = False

    def __init__(
        self,
        path: Path,
        fields: dict[str, Any],
        library: tokenizers.Tokenizer,
        vocabulary: Vocabulary,
    ) -> None:
        """Take the steps of a file.

        Args:
            path: the file, for messages.
            fields: what it holds.
            library: made from the file; from now on it takes special tokens for text.
            vocabulary: of the file.

        Raises:
            UnsupportedModelError: nothing in the file says how to decode.
        """
        self._vocabulary = vocabulary
        self._spelled = _spelling(path, fields)
        self._encoder = self._encoder_inside = library
        if any(part.get("prepend_scheme") == "first" for part in _parts(fields)):
            self._encoder_inside = _without_blank_in_front(fields)
        self._encoder.encode_special_tokens = True
        self._encoder_inside.encode_special_tokens = True

    def encode(self, text: str, *, at_start: bool) -> list[int]:
        """Encode text that holds no special token; only a text at the start is the first."""
        encoder = self._encoder if at_start else self._encoder_inside
        return encode_text(encoder, text)

    def piece(self, token_id: int) -> bytes:
        """Give the bytes of a token that is neither control nor user-defined."""
        byte = self._vocabulary.byte_of.get(token_id)
        if byte is not None:
            return bytes([byte])
        return self._spelled(self._vocabulary.tokens[token_id])


def _without_blank_in_front(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    inside = json.loads(json.dumps({**fields, "truncation": None, "padding": None}))
    for part in _parts(inside):
        if part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
    return tokenizers.Tokenizer.from_str(json.dumps(inside))


def _spelling(path: Path, fields: dict[str, Any]) -> Callable[[str], bytes]:
    """Find out how tokens spell bytes, by the names of the steps."""
    steps = {
        str(part.get("type"))
        for name in ("pre_tokenizer", "decoder", "normalizer")
        for part in _parts(fields.get(name))
    }
    if "ByteLevel" in steps:
        return from_byte_alphabet
    if "WordPiece" in steps:
        return lambda token: (
            token.removeprefix(_INSIDE) if token.startswith(_INSIDE) else f" {token}"
        ).encode()
    if steps & {"Metaspace", "ByteFallback", "Prepend"}:
        return lambda token: token.replace(BLANK, " ").encode()
    raise UnsupportedModelError(
        f"{path}: has a tokenizer with the steps {', '.join(sorted(steps)) or 'none'}; supported: "
        "ByteLevel, Metaspace, ByteFallback, WordPiece; convert the model to GGUF"
    )


def _parts(value: object) -> Iterator[dict[str, Any]]:
    """Give every object in a nested value."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part

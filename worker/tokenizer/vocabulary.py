"""The vocabulary of a GGUF file: tokens, their types and the ids with a special meaning."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import Keys, TokenType
from numpy.typing import NDArray

from worker.errors import GGUFError, RowError
from worker.gguf.metadata import Metadata
from worker.gguf.wording import shown

from .end_tokens import end_ids_by_name, infill_ids_by_name
from .kept_strings import KeptStrings

BLANK = "\u2581"
"""Stands for a blank in vocabularies that are not byte-level."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that metadata names; None where a file names none.

    Attributes:
        bos: begin of text.
        eos: end of text.
        unk: stands for what cannot be encoded.
        ends: eos and the end-of-turn, end-of-message and infilling ends that are named.
    """

    bos: int | None
    eos: int | None
    unk: int | None
    ends: frozenset[int]


class Vocabulary:
    """Tokens by id and by text.

    Attributes:
        path: the model file, for messages.
        tokens: text of each token, as stored.
        types: ``gguf.TokenType`` of each token, int64 [vocab_size].
        ids: text to id.
        control: tokens that text never becomes unless a template asks: types control and
            unknown, and what ends a completion or stands around a gap to fill by name, whatever
            its type.
        user_defined: text to id of tokens that are matched even in plain text.
        byte_of: the byte that each token of type byte stands for (``<0x0A>``).
        special: ids with a meaning.
        end_ids: tokens that end a completion.
    """

    def __init__(
        self, path: Path, tokens: list[str], types: NDArray[np.int64], special: SpecialIds
    ) -> None:
        """Check the vocabulary.

        Args:
            path: the model file, for messages.
            tokens: text of each token.
            types: ``gguf.TokenType`` of each token, int64 [vocab_size].
            special: ids with a meaning.

        Raises:
            GGUFError: a token occurs twice, or a byte token is malformed.
        """
        self.path = path
        self.tokens = tokens
        self.types = types
        self.special = special
        self.ids = _ids(path, tokens)
        self.byte_of = _bytes(path, tokens, types)
        marked = np.isin(types, (TokenType.CONTROL, TokenType.UNKNOWN))
        of_control_type = frozenset(np.flatnonzero(marked).tolist())
        named_ends = end_ids_by_name(self.ids, of_control_type)
        self.control = of_control_type | named_ends | infill_ids_by_name(self.ids)
        self.end_ids = special.ends | named_ends
        self.user_defined = {
            tokens[token_id]: token_id
            for token_id in np.flatnonzero(types == TokenType.USER_DEFINED).tolist()
            if token_id not in self.control
        }

    @classmethod
    def from_metadata(
        cls, metadata: Metadata, defaults: Mapping[str, int], kept: KeptStrings
    ) -> "Vocabulary":
        """Read and check the vocabulary of a model file.

        Args:
            metadata: of the model file.
            defaults: id by metadata key for keys that the file leaves out; taken where the token
                is not an ordinary one.
            kept: of the model file.

        Raises:
            GGUFError: lengths differ, a token occurs twice, a byte token is malformed, an id is
                outside the vocabulary.
        """
        tokens = kept.get("tokens", lambda: _tokens(metadata))
        types = _types(metadata, tokens)
        # Only a token that is special can stand in for a missing key; id 0 may be any word.
        usual = {
            key: token_id
            for key, token_id in defaults.items()
            if token_id < len(tokens) and types[token_id] != TokenType.NORMAL
        }
        return cls(metadata.path, tokens, types, _special_ids(metadata, usual, len(tokens)))

    def __len__(self) -> int:
        return len(self.tokens)

    def ids_without(self, left_out: Collection[int]) -> dict[str, int]:
        """Give text to id, without some tokens."""
        ids = self.ids.copy()
        for token_id in left_out:
            del ids[self.tokens[token_id]]
        return ids

    def blank_piece(self, token_id: int) -> bytes:
        """Give the bytes of a token of a vocabulary that spells blanks as ``BLANK``."""
        byte = self.byte_of.get(token_id)
        if byte is not None:
            return bytes([byte])
        return self.tokens[token_id].replace(BLANK, " ").encode()

    def lacks(self, character: str) -> RowError:
        """Word the error of a text with a character that no token can express."""
        return RowError(
            f"the prompt has the character U+{ord(character):04X}, for which the model's "
            "vocabulary has no token; leave it out"
        )


def _tokens(metadata: Metadata) -> list[str]:
    tokens = metadata.strings(Keys.Tokenizer.LIST)
    if not tokens:
        raise GGUFError(
            f"{metadata.path}: key {Keys.Tokenizer.LIST} is an empty array, expected at least one "
            "token; convert the model again"
        )
    # An empty text would match everywhere; llama.cpp gives such tokens this name.
    return [text or f"[EMPTY_{token_id}]" for token_id, text in enumerate(tokens)]


def _types(metadata: Metadata, tokens: list[str]) -> NDArray[np.int64]:
    types = metadata.numbers(Keys.Tokenizer.TOKEN_TYPE, None)
    if types is None:
        return _guessed_types(metadata, tokens)
    check_length(metadata, Keys.Tokenizer.TOKEN_TYPE, len(types), len(tokens))
    return types.astype(np.int64)


def _guessed_types(metadata: Metadata, tokens: list[str]) -> NDArray[np.int64]:
    """Tell byte tokens by their form and special tokens by the ids that the file names."""
    types = np.full(len(tokens), TokenType.NORMAL, dtype=np.int64)
    types[[_BYTE_TOKEN.fullmatch(token) is not None for token in tokens]] = TokenType.BYTE
    names = Keys.Tokenizer
    kinds = {names.UNK_ID: TokenType.UNKNOWN} | dict.fromkeys(
        (names.BOS_ID, names.EOS_ID), TokenType.CONTROL
    )
    for key, kind in kinds.items():
        token_id = metadata.integer(key, None)
        if token_id is not None and 0 <= token_id < len(tokens):
            types[token_id] = kind
    return types


def check_length(metadata: Metadata, key: str, found: int, expected: int) -> None:
    """Raise GGUFError unless an array has one entry a token."""
    if found != expected:
        raise GGUFError(
            f"{metadata.path}: key {key} has {found} entries, expected {expected}, one for each "
            f"of {Keys.Tokenizer.LIST}; convert the model again"
        )


def _ids(path: Path, tokens: list[str]) -> dict[str, int]:
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        twice = next(token_id for token_id, text in enumerate(tokens) if ids[text] != token_id)
        raise GGUFError(
            f"{path}: key {Keys.Tokenizer.LIST} has the token '{shown(tokens[twice])}' twice, as "
            f"ids {twice} and {ids[tokens[twice]]}; convert the model again"
        )
    return ids


def _bytes(path: Path, tokens: list[str], types: NDArray[np.int64]) -> dict[int, int]:
    byte_of = {}
    for token_id in np.flatnonzero(types == TokenType.BYTE).tolist():
        match = _BYTE_TOKEN.fullmatch(tokens[token_id])
        if match is None:
            raise GGUFError(
                f"{path}: key {Keys.Tokenizer.LIST} has '{shown(tokens[token_id])}' as a byte "
                f"token (id {token_id}, type 6), expected the form <0x0A>; convert the model again"
            )
        byte_of[token_id] = int(match[1], 16)
    return byte_of


def _special_ids(metadata: Metadata, defaults: Mapping[str, int], count: int) -> SpecialIds:
    def checked(key: str) -> int | None:
        token_id = metadata.integer(key, None)
        if token_id is None:
            return defaults.get(key)
        if not 0 <= token_id < count:
            raise GGUFError(
                f"{metadata.path}: key {key} is {token_id}, expected an id below the vocabulary "
                f"size {count}; convert the model again"
            )
        return token_id

    names = Keys.Tokenizer
    eos = checked(names.EOS_ID)
    checked(names.PAD_ID)
    others = (names.EOT_ID, names.EOM_ID, names.FIM_PAD_ID, names.FIM_REP_ID, names.FIM_SEP_ID)
    ends = frozenset(end for end in (eos, *map(checked, others)) if end is not None)
    return SpecialIds(checked(names.BOS_ID), eos, checked(names.UNK_ID), ends)

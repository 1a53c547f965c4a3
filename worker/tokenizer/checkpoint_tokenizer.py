"""The tokenizer of a Hugging Face checkpoint folder, on the tokenizers library.

``tokenizer.json`` says how text is encoded, ``tokenizer_config.json`` which tokens begin and end a
text; templates are in ``chat_template.jinja``, ``additional_chat_templates`` or the configuration.
Special tokens are found here, as for GGUF files, so that text from users stays text.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from gguf import TokenType

from worker.errors import CheckpointError
from worker.gguf.wording import shown

from .added_tokens import AddedTokens
from .library_model import LibraryModel
from .template_sources import DEFAULT
from .tokenizer import Tokenizer
from .vocabulary import SpecialIds, Vocabulary

_TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_TEMPLATE = "chat_template.jinja"
_MORE_TEMPLATES = "additional_chat_templates"
_MAX_TOKENIZER_BYTES = 1 << 26
_MAX_CONFIG_BYTES = 1 << 23
_PROBE = "a"  # some text, to see what is put around it
Fields = dict[str, Any]


def checkpoint_tokenizer(folder: Path, rows: int | None = None) -> Tokenizer:
    """Build the tokenizer of a folder.

    Args:
        folder: with tokenizer.json.
        rows: of the model's embedding. Control tokens behind the last one are left out: text
            models of a family that also sees images have some. None for no bound.

    Raises:
        CheckpointError: a file is missing or not sound.
        UnsupportedModelError: the tokenizer is of a kind that tokenmill cannot decode.
    """
    path = folder / _TOKENIZER
    fields = _read(path, _MAX_TOKENIZER_BYTES)
    config = _read(folder / _CONFIG, _MAX_CONFIG_BYTES) if (folder / _CONFIG).is_file() else {}
    added = _added(path, fields)
    library = _library(path)
    vocab = _vocab(path, library, added, rows)
    added = [each for each in added if rows is None or each["id"] < rows]
    tokens, types = _tokens(path, library, vocab, added)
    around = _around(path, library, len(tokens))
    ids = {text: token_id for token_id, text in enumerate(tokens)}
    special = _special_ids(folder, fields, config, ids)
    vocabulary = Vocabulary(path, tokens, types, special)
    return Tokenizer(
        vocabulary,
        LibraryModel(path, fields, library, vocabulary),
        added=around,
        chat_templates=_templates(folder, config),
        right_strip=[each["id"] for each in added if each.get("rstrip")],
        left_strip=[each["id"] for each in added if each.get("lstrip")],
    )


def _read(path: Path, most: int) -> Fields:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size  # room for what is read is made beforehand
            if size > most:
                raise CheckpointError(f"{path}: more than {most} bytes; take a complete checkpoint")
            raw = file.read(size)
        value = json.loads(raw)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing; a checkpoint needs it (tokenizer.model alone is not read): save "
            "the tokenizer again with a current version of transformers, or take a GGUF file"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: no JSON: {shown(str(error), 200)}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: found a {type(value).__name__}, expected an object")
    return value


def _library(path: Path) -> tokenizers.Tokenizer:
    """The library's tokenizer; texts are neither cut nor filled up, whatever the file asks for."""
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
        library.no_truncation()
        library.no_padding()
        return library
    except Exception as error:  # the library raises nothing more particular
        raise CheckpointError(
            f"{path}: cannot be used: {shown(str(error), 200)}; save the tokenizer again"
        ) from error


def _added(path: Path, fields: Fields) -> list[Fields]:
    added = fields.get("added_tokens") or []
    if not isinstance(added, list) or not all(_is_added(each) for each in added):
        raise CheckpointError(f"{path}: added_tokens is not a list of tokens with id and content")
    return added


def _is_added(token: object) -> bool:
    return (
        isinstance(token, dict)
        and isinstance(token.get("id"), int)
        and isinstance(token.get("content"), str)
        and token["content"] != ""
    )


def _vocab(
    path: Path, library: tokenizers.Tokenizer, added: Iterable[Fields], rows: int | None
) -> dict[str, int]:
    """Give the id of each token that the embedding has a row for."""
    vocab = library.get_vocab(with_added_tokens=True)
    if rows is None:
        return vocab
    control = {each["content"] for each in added if each.get("special")}
    for text, token_id in vocab.items():
        if token_id >= rows and text not in control:
            raise CheckpointError(
                f"{path}: token {shown(text)} has the id {token_id}, but the model's embedding has "
                f"only {rows} rows; take the tokenizer that belongs to the model"
            )
    return {text: token_id for text, token_id in vocab.items() if token_id < rows}


def _tokens(
    path: Path, library: tokenizers.Tokenizer, vocab: Mapping[str, int], added: Iterable[Fields]
) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int64]]]:
    """Give text and type of each token; ids that no token has become unused ones."""
    count = max(vocab.values(), default=-1) + 1
    if count == 0 or count > 2 * len(vocab) + 1024:
        raise CheckpointError(f"{path}: {len(vocab)} tokens with ids up to {count - 1}")
    tokens = [f"[UNUSED_{token_id}]" for token_id in range(count)]
    types = np.full(count, TokenType.UNUSED, np.int64)
    for text, token_id in vocab.items():
        tokens[token_id] = text
        types[token_id] = TokenType.NORMAL
    for each in added:
        if vocab.get(each["content"]) != each["id"]:
            raise CheckpointError(
                f"{path}: added token {shown(each['content'])!r} has the id {each['id']}, but the "
                f"vocabulary gives it {vocab.get(each['content'])}; save the tokenizer again"
            )
        special = each.get("special")
        types[each["id"]] = TokenType.CONTROL if special else TokenType.USER_DEFINED
    if getattr(library.model, "byte_fallback", False):
        spelled = {f"<0x{byte:02X}>" for byte in range(256)} & vocab.keys()
        types[[vocab[text] for text in spelled]] = TokenType.BYTE
    return tokens, types


def _special_ids(
    folder: Path, fields: Fields, config: Fields, ids: Mapping[str, int]
) -> SpecialIds:
    model = fields.get("model")
    unknown = model.get("unk_token") if isinstance(model, dict) else None
    eos = ids.get(_content(config.get("eos_token")))
    ends = {eos, *_generation_ends(folder, len(ids))} - {None}
    return SpecialIds(
        ids.get(_content(config.get("bos_token"))),
        eos,
        ids.get(_content(unknown) or _content(config.get("unk_token"))),
        frozenset(end for end in ends if end is not None),
    )


def _content(token: object) -> str:
    """Give the text of a token, which is stored as text or as an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""


def _generation_ends(folder: Path, count: int) -> list[int]:
    """Give the ids at which generation ends, by the model's settings for generating."""
    path = folder / "generation_config.json"
    named = _read(path, _MAX_CONFIG_BYTES).get("eos_token_id") if path.is_file() else None
    ends = named if isinstance(named, list) else [] if named is None else [named]
    for end in ends:
        if not isinstance(end, int) or not 0 <= end < count:
            raise CheckpointError(
                f"{path}: eos_token_id is {shown(end)}, expected ids below the vocabulary size "
                f"{count}"
            )
    return ends


def _around(path: Path, library: tokenizers.Tokenizer, count: int) -> AddedTokens:
    """See what the post-processor puts around a text."""
    bare = library.encode(_PROBE, add_special_tokens=False).ids
    full = library.encode(_PROBE, add_special_tokens=True).ids
    if max(full, default=0) >= count:
        raise CheckpointError(
            f"{path}: the post-processor adds the id {max(full)}, expected ids below the "
            f"vocabulary size {count}; save the tokenizer again"
        )
    front = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)
    return AddedTokens(tuple(full[:front]), tuple(full[front + len(bare) :]))


def _templates(folder: Path, config: Fields) -> dict[str, str]:
    templates = _configured(folder, config.get("chat_template"))
    if (folder / _TEMPLATE).is_file():
        templates[DEFAULT] = _text(folder / _TEMPLATE)
    for path in sorted((folder / _MORE_TEMPLATES).glob("*.jinja")):
        templates[path.stem] = _text(path)
    return templates


def _configured(folder: Path, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    named = value if isinstance(value, list) else []
    templates = {
        each["name"]: each["template"]
        for each in named
        if isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("template"), str)
    }
    if not named or len(templates) < len(named):
        raise CheckpointError(
            f"{folder / _CONFIG}: chat_template is neither text nor a list of names and templates"
        )
    return templates


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_CONFIG_BYTES).decode()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not valid UTF-8 (byte {error.start})") from error

"""What a tokenizer works out from a model file, kept in the cache folder for the next start."""

import hashlib
import json
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from worker.cache_folder import cache_folder
from worker.checked_file import read_checked, write_checked
from worker.file_identity import FileIdentity

_log = logging.getLogger(__name__)

# A list is one text with a character between its strings: split() cuts it several times faster
# than a GGUF file's strings are read. These characters mean nothing in any text (Unicode 23.7).
_SEPARATORS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
_WORTH_KEEPING = 10_000  # strings; smaller vocabularies are worked out as fast as they are read


class KeptStrings:
    """Lists of strings by name, which belong to one version of one file.

    What is kept was worked out by the same sources of the tokenizer, or is worked out again. A
    cache folder that cannot be used costs time only.
    """

    def __init__(self, identity: FileIdentity) -> None:
        """Read what was kept for a file."""
        name = hashlib.sha256(os.fsencode(identity.path)).hexdigest()
        self._path = cache_folder() / "tokenizers" / name
        self._key = f"{identity.digest} {_sources()}"
        self._texts = self._read()
        self._new: dict[str, list[str]] = {}

    def get(self, name: str, work_out: Callable[[], list[str]]) -> list[str]:
        """Give a list as it was kept, or work it out."""
        text = self._texts.get(name)
        if text is None:
            self._new[name] = work_out()
            return self._new[name]
        # A text begins with the separator that it was joined with.
        return text[1:].split(text[0]) if text else []

    def keep(self) -> None:
        """Keep what was worked out, if it is much."""
        if sum(map(len, self._new.values())) < _WORTH_KEEPING:
            return
        joined = {name: _joined(strings) for name, strings in self._new.items()}
        texts = {name: text for name, text in joined.items() if text is not None}
        try:
            write_checked(self._path, self._content({**self._texts, **texts}))
        except OSError as error:
            _log.warning("cannot keep a tokenizer in %s: %s", self._path.parent, error)

    def _content(self, texts: dict[str, str]) -> bytes:
        """Write a line of JSON, which gives names and lengths, and the texts."""
        blobs = {name: text.encode() for name, text in texts.items()}
        lengths = {name: len(blob) for name, blob in blobs.items()}
        head = json.dumps({"key": self._key, "lengths": lengths}).encode()
        return b"".join((head, b"\n", *blobs.values()))

    def _read(self) -> dict[str, str]:
        try:
            content = read_checked(self._path)
        except OSError as error:
            _log.warning("cannot read a tokenizer kept in %s: %s", self._path.parent, error)
            return {}
        if content is None:
            return {}
        end = content.index(b"\n")
        head = json.loads(content[:end])
        if head["key"] != self._key:
            return {}
        texts = {}
        position = end + 1
        for name, length in head["lengths"].items():
            texts[name] = content[position : position + length].decode()
            position += length
        return texts


def _joined(strings: list[str]) -> str | None:
    """Join strings behind and between a character that they do not hold; None if they hold all."""
    text = "".join(strings)
    separator = next((each for each in _SEPARATORS if each not in text), None)
    if separator is None:
        return None
    return separator + separator.join(strings) if strings else ""


@cache
def _sources() -> str:
    """Hash of the tokenizer's sources: another release may work out something else."""
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()

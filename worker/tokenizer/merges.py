"""The merges of a byte-pair encoding as GGUF files store them."""

from collections.abc import Iterator

from gguf.constants import Keys

from worker.errors import GGUFError
from worker.gguf.metadata import Metadata
from worker.gguf.wording import shown

from .kept_strings import KeptStrings
from .vocabulary import Vocabulary


def read_merges(
    metadata: Metadata, vocabulary: Vocabulary, kept: KeptStrings
) -> list[tuple[str, str]]:
    """Give left and right of the merges in order of rank, without those of a control token.

    Raises:
        GGUFError: merges and vocabulary do not fit together.
    """
    merges = kept.get("merges", lambda: list(_merges(metadata, vocabulary)))
    return list(zip(merges[::2], merges[1::2], strict=True))


def _merges(metadata: Metadata, vocabulary: Vocabulary) -> Iterator[str]:
    ids = vocabulary.ids
    for rank, merge in enumerate(metadata.strings(Keys.Tokenizer.MERGES)):
        pair = _split_merge(merge, vocabulary)
        if pair is None:
            raise GGUFError(
                f"{metadata.path}: key {Keys.Tokenizer.MERGES}, entry {rank} is '{shown(merge)}', "
                "expected two tokens and a blank between them whose joined text is a token of "
                f"{Keys.Tokenizer.LIST}; convert the model again"
            )
        left, right = pair
        if vocabulary.control.isdisjoint((ids[left], ids[right], ids[left + right])):
            yield from pair


def _split_merge(merge: str, vocabulary: Vocabulary) -> tuple[str, str] | None:
    """Find the blank that parts a merge; either part may hold blanks itself."""
    ids = vocabulary.ids
    blank = merge.find(" ", 1)
    while blank != -1:
        left, right = merge[:blank], merge[blank + 1 :]
        if left in ids and right in ids and left + right in ids:
            return left, right
        blank = merge.find(" ", blank + 1)
    return None

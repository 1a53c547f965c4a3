"""Models that are on their way into the cache folder: their growth is a sign of life."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .cache_folder import cache_folder

# Of wheels, of web addresses, of the Hub, and of other machines.
_PATTERNS: Final = (
    "models/*/.fetch-*/**/*",
    "models/*/.partial-*",
    "huggingface/models--*/blobs/*.incomplete",
    "received/.partial-*/**/*",
)
_BLOCK_BYTES: Final = 512  # POSIX's unit of st_blocks


def unfinished_bytes() -> int:
    """Count the bytes on disk of all unfinished files, whichever process fetches them.

    On disk: who knows a file's length may give it to the file before the bytes come.
    """
    return sum(_bytes_on_disk(path) for path in unfinished_files())


def unfinished_files() -> Iterator[Path]:
    """List them."""
    for pattern in _PATTERNS:
        yield from cache_folder().glob(pattern)


def _bytes_on_disk(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # finished at this moment
        return path.stat().st_blocks * _BLOCK_BYTES
    return 0

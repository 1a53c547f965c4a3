"""Making names in a folder outlast a power cut."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Return when the folder's names, those of renamed files included, are on disk.

    Raises:
        OSError: the disk fails.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Files of the cache folder that notice their own damage."""

import hashlib
import logging
import os
import secrets
from pathlib import Path

_log = logging.getLogger(__name__)

_DIGEST_BYTES = hashlib.sha256().digest_size


def read_checked(path: Path) -> bytes | None:
    """Give what `write_checked` put into a file; None if it is not there or damaged.

    Raises:
        OSError: the file is there and cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    content = data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
        _log.warning("%s is damaged; what it held is made again", path)
        return None
    return content


def write_checked(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, behind a hash of what it holds.

    Readers see the file before or the new one. A machine that stops at this moment may leave half
    a file: the hash tells.

    Raises:
        OSError: the folder cannot be written to, or the disk is full; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        # Not by tempfile: its files are for one user, and an image is often made by another one.
        with temporary.open("xb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

"""Files from the web, over http and https, gone on with where a fetch broke off."""

import contextlib
import http.client
import logging
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Final

import certifi

from .errors import ModelSourceError
from .folder_sync import sync_folder

_log = logging.getLogger(__name__)

PARTIAL_PREFIX: Final = ".partial-"
_CHUNK_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 60.0  # without a byte
_ATTEMPTS: Final = 5  # one after the other without a byte more
_PAUSE_S: Final = 1.0  # before the second attempt; twice as long before each further one
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class _BrokenOffError(Exception):
    """The connection ended early, or the server is busy: trying again may help."""


def fetch_web_file(address: str, target: Path) -> None:
    """Download a file; it appears as a whole or not at all.

    What a broken fetch left is gone on with if the server says that its file is still the same
    (ETag or date, RFC 9110 section 13.1.5), so a mixture of two versions cannot come about. The
    caller holds the lock of the folder.

    Raises:
        ModelSourceError: the server refuses, or ends the connection again and again.
        OSError: the disk fails.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _Partial(
        target.with_name(f"{PARTIAL_PREFIX}{target.name}"),
        target.with_name(f"{PARTIAL_PREFIX}{target.name}.version"),
    )
    failures = 0
    while True:
        before = partial.size
        try:
            _fetch(address, partial)
            break
        except _BrokenOffError as error:
            failures = 1 if partial.size > before else failures + 1
            if failures == _ATTEMPTS:
                raise ModelSourceError(
                    f"{address}: cannot be fetched: {error}; {partial.size:,} bytes of it are kept "
                    "and gone on with: check the address and the network, and try again"
                ) from error
            _log.info("%s: %s; trying again", address, error)
            time.sleep(_PAUSE_S * 2 ** (failures - 1))
    partial.path.replace(target)
    partial.forget()
    sync_folder(target.parent)


@dataclass(frozen=True, slots=True)
class _Partial:
    """What is there of a file, and which version of the server's file it is of."""

    path: Path
    version_path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    @property
    def version(self) -> str:
        return self.version_path.read_text() if self.version_path.is_file() else ""

    def begin(self, version: str) -> None:
        self.path.write_bytes(b"")
        self.version_path.write_text(version)

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self.version_path.unlink(missing_ok=True)


def _fetch(address: str, partial: _Partial) -> None:
    """Bring the partial file to its end.

    Raises:
        _BrokenOffError: before the end.
        ModelSourceError: the server refuses.
    """
    offset, version = partial.size, partial.version
    headers = {"User-Agent": "tokenmill", "Accept-Encoding": "identity"}
    if offset and version:
        headers |= {"Range": f"bytes={offset}-", "If-Range": version}
    request = urllib.request.Request(address, headers=headers)
    end: int | None = None
    with (
        _errors_told(address, partial),
        urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=_tls()) as answer,
    ):
        start, end = _range(answer)
        if start != offset or not start:
            partial.begin(_version(answer))
        with partial.path.open("ab") as out:
            _copy(answer, out)
            os.fsync(out.fileno())
    if end is not None and partial.size != end:
        raise _BrokenOffError(f"{partial.size} of {end} bytes came")


@contextlib.contextmanager
def _errors_told(address: str, partial: _Partial) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if error.headers.get("Content-Range", "") == f"bytes */{partial.size}":
                return  # all of it had come
            partial.forget()
            raise _BrokenOffError("the file on the server has changed") from error
        if error.code in _TRY_AGAIN:
            raise _BrokenOffError(f"HTTP {error.code} {error.reason}") from error
        raise ModelSourceError(
            f"{address}: cannot be fetched: HTTP {error.code} {error.reason}; check the address, "
            "and that it needs no login"
        ) from error
    except urllib.error.URLError as error:
        raise _BrokenOffError(str(error.reason)) from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _BrokenOffError(str(error) or type(error).__name__) from error


def _copy(answer: http.client.HTTPResponse, out: BinaryIO) -> None:
    while chunk := answer.read(_CHUNK_BYTES):
        out.write(chunk)
        out.flush()  # its size is a sign of life


def _range(answer: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Where the bytes that come begin in the file, and where it ends if the server says so."""
    if answer.status == HTTPStatus.PARTIAL_CONTENT:
        text = answer.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", text.strip())
        if match is None:
            raise _BrokenOffError(f"the server sends the range {text!r}")
        return int(match[1]), None if match[2] == "*" else int(match[2])
    length = answer.headers.get("Content-Length")
    return 0, None if length is None else int(length)


def _version(answer: http.client.HTTPResponse) -> str:
    """What tells versions of the server's file apart; nothing if it may not serve to go on with."""
    tag: str = answer.headers.get("ETag", "")
    if tag and not tag.startswith("W/"):
        return tag
    return answer.headers.get("Last-Modified", "") if not tag else ""


@cache
def _tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())  # Python of python.org knows no roots on macOS
    return context

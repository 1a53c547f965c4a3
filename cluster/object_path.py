"""Objects of a bucket under pathlib's names, for as much of a path as runs and inputs need."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import pyarrow as pa
from pyarrow import fs

from .errors import JobConfigError

_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ATOMIC_PUT: Final = {"s3", "gcs"}  # by pyarrow's type name: an object is there whole or not at all
_REQUESTS_AT_ONCE: Final = 16


def is_uri(name: str) -> bool:
    """Tell whether a name is a URI rather than a path."""
    return _URI.match(name) is not None


class Stat(NamedTuple):
    """What ``stat`` says of an object."""

    st_size: int


class ObjectStore:
    """One bucket or file system of pyarrow's, as this process uses it.

    Args:
        files: pyarrow's access to it.
        prefix: what stands before pyarrow's paths in messages: ``s3://``, say. No credentials.
        identity: equal for two stores that are the same one.

    Attributes:
        confirm: called before each change; raises if this process may no longer write.
    """

    def __init__(self, files: fs.FileSystem, prefix: str, identity: object) -> None:
        self.files = files
        self.prefix = prefix
        self.identity = identity
        self.confirm: Callable[[], None] = lambda: None
        self.puts_whole = files.type_name in _ATOMIC_PUT

    def write(self, key: str, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Put an object once it is confirmed that this process may.

        Raises:
            OSError: the store refuses it.
        """
        self.confirm()
        self.put(key, data)

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Put an object: it is there whole or not at all.

        All of the data goes in one call: pyarrow finishes an upload that Python gives up half-way.
        A process that is killed meanwhile leaves an unfinished multipart upload, which no reader
        sees.

        Raises:
            OSError: the store refuses it.
        """
        target = key if self.puts_whole else f"{key}.tmp"
        stream = self.files.open_output_stream(target)
        stream.write(data)
        stream.close()
        if target != key:
            self.files.move(target, key)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete objects, several at once; one that is not there does not matter.

        Raises:
            OSError: the store refuses it.
        """
        self.confirm()
        for _ in self.each(self._remove, keys):
            pass

    def each(self, do: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Do something that waits for the store for several items at once; results in order."""
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as threads:
            yield from threads.map(do, items)

    def _remove(self, key: str) -> None:
        with suppress(FileNotFoundError):
            self.files.delete_file(key)


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """An object, there or not, or the common beginning of several that stands for a folder.

    Methods have the names and the meaning of pathlib's. All raise OSError if the store fails.

    Attributes:
        store: where it is.
        key: pyarrow's path: bucket and key, no slash at the end.
    """

    store: ObjectStore
    key: str

    @classmethod
    def parse(cls, uri: str) -> "ObjectPath":
        """Return what a URI names; its query has pyarrow's options (``endpoint_override``, say).

        Raises:
            JobConfigError: pyarrow does not know such URIs or options.
            OSError: the store does not answer.
        """
        parts = urlsplit(uri)
        place = parts.netloc.rpartition("@")[2]
        name = f"{parts.scheme}://{place}{parts.path}"  # without credentials
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        endpoint = options.get("endpoint_override")
        if parts.scheme == "s3":
            # Small objects in one request each, rather than three.
            options.setdefault("allow_delayed_open", "true")
        query = f"?{urlencode(options)}" if options else ""
        try:
            files, root = fs.FileSystem.from_uri(f"{parts.scheme}://{parts.netloc}/{query}")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise JobConfigError(
                f"{name}: not a place that can be opened ({error}); give a path, or a URI that "
                "pyarrow.fs knows: s3://bucket/key, gs://bucket/key"
            ) from error
        prefix = f"{parts.scheme}://" + ("" if root.strip("/") else place)
        key = root.rstrip("/") + unquote(parts.path).rstrip("/")
        return cls(ObjectStore(files, prefix, (parts.scheme, place, endpoint)), key)

    @property
    def name(self) -> str:
        """What is behind the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return Path(self.name).stem

    @property
    def parent(self) -> "ObjectPath":
        """The folder it is in."""
        return ObjectPath(self.store, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> "ObjectPath":
        return ObjectPath(self.store, f"{self.key}/{name}")

    def __str__(self) -> str:
        return f"{self.store.prefix}{self.key}"

    def relative_key(self, root: "ObjectPath") -> str:
        """Return the path below a folder, with ``/``."""
        return self.key.removeprefix(root.key).lstrip("/")

    def exists(self) -> bool:
        """Tell whether an object or a folder of this name is there."""
        return bool(self._info().type is not fs.FileType.NotFound)

    def is_file(self) -> bool:
        """Tell whether it is an object."""
        return bool(self._info().type is fs.FileType.File)

    def is_dir(self) -> bool:
        """Tell whether objects are below it."""
        return bool(self._info().type is fs.FileType.Directory)

    def stat(self) -> Stat:
        """Return the size of an object in bytes."""
        return Stat(self._info().size)

    def open(self, _mode: str = "rb") -> BufferedReader:
        """Open an object for reading."""
        return cast(BufferedReader, self.store.files.open_input_file(self.key))

    def read_bytes(self) -> bytes:
        """Return the content."""
        with self.open() as file:
            return file.read()

    def iterdir(self) -> Iterator["ObjectPath"]:
        """Yield what is right below, in the order of names."""
        return self._below(recursive=False)

    def glob(self, pattern: str) -> Iterator["ObjectPath"]:
        """Yield what is right below and has a name that fits."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def objects(self) -> Iterator["ObjectPath"]:
        """Yield all objects below, at any depth."""
        return self._below(recursive=True)

    def put(self, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Write the object, whole or not at all."""
        self.store.write(self.key, data)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object."""
        if not missing_ok and not self.is_file():
            raise FileNotFoundError(f"{self}: no such object")
        self.store.remove([self.key])

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder, where the store has such a thing."""
        del parents, exist_ok  # as in pathlib; both are always so here
        if not self.store.puts_whole:
            self.store.files.create_dir(self.key, recursive=True)

    def rmdir(self) -> None:
        """Remove an empty folder, where the store has such a thing."""
        if not self.store.puts_whole:
            self.store.files.delete_dir(self.key)

    def remove_tree(self) -> None:
        """Delete all that is below."""
        self.store.confirm()
        self.store.files.delete_dir(self.key)

    def _info(self) -> fs.FileInfo:
        return self.store.files.get_file_info(self.key)

    def _below(self, *, recursive: bool) -> Iterator["ObjectPath"]:
        selector = fs.FileSelector(self.key, allow_not_found=True, recursive=recursive)
        for info in sorted(self.store.files.get_file_info(selector), key=lambda info: info.path):
            if not recursive or info.type is fs.FileType.File:
                yield ObjectPath(self.store, info.path)

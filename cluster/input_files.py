"""Which files an input path stands for, and in which order."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .errors import InputError
from .location import Location, location, without_secrets
from .object_path import ObjectPath

_SKIPPED_PREFIXES = ("_", ".")
_PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_MAGICS = (b"PAR1", b"PARE")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class InputPath:
    """One input file.

    Attributes:
        path: where to open it.
        relative: its path below the input root, with ``/``; orders the files and names them in
            messages. The root is the folder given, the folder of a single file, or the part of a
            glob pattern before its first wildcard.
    """

    path: Location
    relative: str


def find_input_files(source: str) -> list[InputPath]:
    """Return the files of a file, folder (taken recursively) or glob pattern, in row-id order.

    Each may be in an object store; its URI's pattern may not use ``?``, which begins the options.

    An existing path is taken literally whatever characters it holds. Names that start with ``_``
    or ``.`` below the root are skipped, as every reader of Parquet folders does. In a folder,
    so is a file that is Parquet neither by its name nor by its first bytes: a README, say.

    Raises:
        InputError: nothing there, nothing left after skipping, a folder that cannot be read, or a
            loop of symbolic links.
    """
    try:
        found = _find(source)
    except OSError as error:
        raise InputError(
            f"{display(str(error.filename or without_secrets(source)))}: cannot be read "
            f"({error.strerror or error}); check the input path and its permissions"
        ) from error
    if not found:
        raise InputError(
            f"{display(without_secrets(source))}: no Parquet files there; names that start with "
            "'_' or '.' are skipped, give a Parquet file, a folder that holds some, or a glob "
            "pattern"
        )
    return sorted(found, key=lambda file: os.fsencode(file.relative))


def _find(source: str) -> list[InputPath]:
    place = location(source)
    if isinstance(place, ObjectPath):
        return _find_objects(place)
    root = place
    if root.is_dir():
        return [InputPath(path, _relative(path, root)) for path in _walk(root, frozenset())]
    if root.exists():
        return [InputPath(root, root.name)]
    if _WILDCARD.search(source):
        return _glob(source)
    raise InputError(f"{display(source)}: no such file or folder; check the path")


def _find_objects(place: ObjectPath) -> list[InputPath]:
    if place.is_file():
        return [InputPath(place, place.name)]
    root, pattern = _object_pattern(place)
    found = ((path, path.relative_key(root)) for path in root.objects())
    wanted = [
        InputPath(path, relative)
        for path, relative in found
        if _is_wanted(pattern, tuple(relative.split("/")))
    ]
    is_data = place.store.each(
        lambda file: (
            _covers(pattern, tuple(file.relative.split("/")), whole=True) or _is_parquet(file.path)
        ),
        wanted,
    )
    return [file for file, is_it in zip(wanted, is_data, strict=True) if is_it]


def _object_pattern(place: ObjectPath) -> tuple[ObjectPath, tuple[str, ...]]:
    """Return the folder before the first wildcard and the pattern below it."""
    if not _WILDCARD.search(place.key):
        return place, ()
    folder = str(_glob_root(place.key))
    pattern = place.key.removeprefix(folder).strip("/").split("/")
    return ObjectPath(place.store, folder), tuple(pattern)


def _is_wanted(pattern: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return not any(name.startswith(_SKIPPED_PREFIXES) for name in names) and _covers(pattern, names)


def would_read(source: str, path: Location) -> bool:
    """Tell whether a Parquet file at ``path``, there or not, would be one of ``source``.

    Raises:
        OSError: the object store of the source does not answer.
    """
    place = location(source)
    if isinstance(place, ObjectPath) or isinstance(path, ObjectPath):
        return _would_read_object(place, path)
    return _would_read_file(source, path)


def _would_read_object(place: Location, path: Location) -> bool:
    if not (isinstance(place, ObjectPath) and isinstance(path, ObjectPath)):
        return False
    root, pattern = _object_pattern(place)
    if root.store.identity != path.store.identity or not path.key.startswith(f"{root.key}/"):
        return False
    return _is_wanted(pattern, tuple(path.relative_key(root).split("/")))


def _would_read_file(source: str, path: Path) -> bool:
    # os.path, not Path: it takes a loop of links or a name too long for a path that is not there.
    root = Path(source)
    pattern: tuple[str, ...] = ("**",)
    if not os.path.exists(source) and _WILDCARD.search(source):  # noqa: PTH110
        root = _glob_root(source)
        pattern = Path(source).relative_to(root).parts
    root, path = Path(os.path.realpath(root)), Path(os.path.realpath(path))
    if not path.is_relative_to(root):
        return False
    return _is_wanted(pattern, path.relative_to(root).parts)


def _covers(pattern: tuple[str, ...], names: tuple[str, ...], *, whole: bool = False) -> bool:
    """Tell whether a glob pattern matches a file, or a folder above it, which is read whole.

    With ``whole`` it must be the file itself.
    """
    if not pattern:
        return not (whole and names)
    if pattern[0] == "**":
        starts = range(len(names))
        return any(_covers(pattern[1:], names[start:], whole=whole) for start in starts)
    if not names or not fnmatchcase(names[0], pattern[0]):
        return False
    return _covers(pattern[1:], names[1:], whole=whole)


def _walk(folder: Path, ancestors: frozenset[str]) -> Iterator[Path]:
    """Yield the Parquet files of a folder and all below it."""
    ancestors = _without_loop(folder, ancestors)
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _walk(entry, ancestors)
        elif _is_parquet(entry):
            yield entry


def _without_loop(folder: Path, ancestors: frozenset[str]) -> frozenset[str]:
    """Return the real paths of the folders above, this one added."""
    real = os.path.realpath(folder)
    if real in ancestors:
        raise InputError(
            f"{display(str(folder))}: a symbolic link leads back to a folder above; remove the link"
        )
    return ancestors | {real}


def _entries(folder: Path) -> list[Path]:
    entries = folder.iterdir()
    return sorted(entry for entry in entries if not entry.name.startswith(_SKIPPED_PREFIXES))


def _is_parquet(path: Location) -> bool:
    """Tell whether a file claims to be Parquet; whether it is a sound one shows its footer."""
    if path.name.lower().endswith(_PARQUET_SUFFIXES):
        return True
    try:
        if isinstance(path, Path) and not path.is_file() and path.exists():
            return False  # a pipe, say: opening it would wait for its writer
        with path.open("rb") as file:
            return file.read(4) in _MAGICS
    except OSError:
        return True  # cannot be told: opening it will say why


def _glob(pattern: str) -> list[InputPath]:
    root = _glob_root(pattern)
    found: dict[str, InputPath] = {}
    for path in _matches(root, Path(pattern).relative_to(root).parts, frozenset()):
        if any(name.startswith(_SKIPPED_PREFIXES) for name in path.relative_to(root).parts):
            continue  # spelled out in the pattern
        for file in _walk(path, frozenset()) if path.is_dir() else [path]:
            found[_relative(file, root)] = InputPath(file, _relative(file, root))
    return list(found.values())


def _matches(path: Path, pattern: tuple[str, ...], ancestors: frozenset[str]) -> Iterator[Path]:
    """Yield what a pattern matches below a path.

    The standard library's glob passes over folders that it may not read, and follows a loop of
    links for 40 rounds: rows would be missing, or there many times.
    """
    if not pattern:
        yield path
    elif not path.is_dir():
        return
    elif pattern[0] == "**":
        ancestors = _without_loop(path, ancestors)
        yield from _matches(path, pattern[1:], frozenset())
        for entry in _entries(path):
            if entry.is_dir():
                yield from _matches(entry, pattern, ancestors)
    elif _WILDCARD.search(pattern[0]):
        for entry in _entries(path):
            if fnmatchcase(entry.name, pattern[0]):
                yield from _matches(entry, pattern[1:], frozenset())
    elif (path / pattern[0]).exists():
        yield from _matches(path / pattern[0], pattern[1:], frozenset())


def _glob_root(pattern: str) -> Path:
    """Return the folder before the first wildcard."""
    fixed = re.split(_WILDCARD, pattern, maxsplit=1)[0]
    return Path(fixed[: fixed.rfind("/") + 1] or ".")


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def display(name: str) -> str:
    """Return a file name as printable text: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")

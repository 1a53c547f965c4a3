"""``tokenmill cache``: what the cache folder holds, removing it, and its limit."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.errors import JobConfigError, JobStoppedError
from worker.cache_content import CacheContent, CacheEntry
from worker.packed_folder import PackedFolder

from .text_table import aligned

_UNITS = {unit: 1000**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_UNITS |= {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T"))}
_UNITS |= {f"{unit}IB": 1024**power for power, unit in enumerate("KMGT", start=1)}
_WORDS = {
    "kernels": "compiled kernels",
    "download": "downloaded model",
    "hashes": "hashes of model files",
    "tokenizers": "tokenizers of model files",
}


def list_cache(output_format: str) -> None:
    """Print what is in the cache folder, as a table or as JSON.

    Raises:
        JobConfigError: the folder cannot be read.
    """
    content, folder = CacheContent(), PackedFolder()
    with _cache_errors(content.folder, "read"):
        if output_format == "json":
            text = json.dumps(_as_json(content, folder), ensure_ascii=False, indent=2)
        else:
            table = [*_table(content.entries), ""] if content.entries else []
            text = "\n".join([*table, *_summary(content, folder)])
    print(text)


def remove_from_cache(names: Sequence[str], *, everything: bool) -> None:
    """Remove entries by name, or all; what a running process uses stays, and is told.

    Raises:
        JobConfigError: nothing is called so, or it cannot be removed.
        JobStoppedError: something that was named is in use.
    """
    if everything == bool(names):
        raise JobConfigError(
            "cache rm takes either the names of what to remove, as `tokenmill cache ls` lists "
            "them, or --all"
        )
    content = CacheContent()
    with _cache_errors(content.folder, "read"):
        chosen = content.entries if everything else _named(content, names)
    kept = [entry for entry in chosen if not _remove(content, entry)]
    freed = sum(entry.n_bytes for entry in chosen) - sum(entry.n_bytes for entry in kept)
    print(f"freed {_size(freed)}")
    if kept and not everything:
        raise JobStoppedError(
            f"{len(kept)} of {len(chosen)} stay, because running processes use them; say it again "
            "when those have ended"
        )


def limit_cache(size: str | None) -> None:
    """Set the limit of packed files and print it; None only prints.

    Raises:
        JobConfigError: the size is none, or cannot be kept.
    """
    content, folder = CacheContent(), PackedFolder()
    if size is not None:
        n_bytes = None if size == "default" else parse_size(size)
        with _cache_errors(content.folder, "written"):
            folder.set_limit(n_bytes)
    with _cache_errors(content.folder, "read"):
        summary = _summary(content, folder)
    print("\n".join(summary))


def parse_size(text: str) -> int:
    """Give the bytes of a size such as 20GB, 512 MiB or 0.

    Raises:
        JobConfigError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip(), re.IGNORECASE)
    if match is None or match[2].upper() not in _UNITS:
        raise JobConfigError(
            f"the limit is {text!r}, expected a size such as 20GB (powers of 1000), 20GiB or 20G "
            "(powers of 1024), or default"
        )
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _named(content: CacheContent, names: Sequence[str]) -> list[CacheEntry]:
    found: dict[str, CacheEntry] = {}
    for name in names:
        entries = content.named(name)
        if not entries:
            raise JobConfigError(
                f"nothing in {content.folder} is called {name!r}; `tokenmill cache ls` lists what "
                "there is"
            )
        found.update((entry.name, entry) for entry in entries)
    return list(found.values())


def _remove(content: CacheContent, entry: CacheEntry) -> bool:
    with _cache_errors(entry.path, "removed"):
        removed = content.remove(entry)
    if removed:
        print(f"removed {entry.name}, {_size(entry.n_bytes)}")
    else:
        print(f"kept {entry.name}: a running process uses it")
    return removed


def _table(entries: Sequence[CacheEntry]) -> Iterator[str]:
    """Aligned lines; the last column, of words, to the left."""
    rows = [("name", "size", "last used", "in use")]
    for entry in entries:
        used = datetime.fromtimestamp(entry.last_used_s).strftime("%Y-%m-%d %H:%M")
        rows.append((entry.name, _size(entry.n_bytes), used, "yes" if entry.in_use else "no"))
    what = ["what", *(_what(entry) for entry in entries)]
    return (f"{line}  {words}" for line, words in zip(aligned(rows), what, strict=True))


def _what(entry: CacheEntry) -> str:
    if entry.kind == "packed":
        return f"packed weights of {entry.model or 'an unknown model'}"
    if entry.kind == "unfinished":
        return "packed weights being written" if entry.in_use else "left by a killed process"
    if entry.kind == "received":
        return f"model {entry.model or 'without a file'} that a driver sent"
    if entry.kind == "partial":
        return f"part of a model that a driver sent, {entry.model or 'nothing yet'}"
    return _WORDS[entry.kind]


def _summary(content: CacheContent, folder: PackedFolder) -> Iterator[str]:
    held, limit = _packed_bytes(content), folder.limit()
    origin = "half of what is free on the disk" if folder.chosen_limit() is None else "as set"
    yield (
        f"packed weights take {_size(held)} of at most {_size(limit)} ({origin}; "
        "`tokenmill cache limit SIZE` changes it)"
    )
    if held > limit:
        yield (
            "the least recently used are removed when the next are written; `tokenmill cache rm` "
            "removes them now"
        )
    yield f"all of this lies in {content.folder}"


def _as_json(content: CacheContent, folder: PackedFolder) -> dict[str, Any]:
    return {
        "folder": str(content.folder),
        "packed_bytes": _packed_bytes(content),
        "packed_limit_bytes": folder.limit(),
        "packed_limit_is_set": folder.chosen_limit() is not None,
        "entries": [_entry_as_json(entry) for entry in content.entries],
    }


def _entry_as_json(entry: CacheEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "path": str(entry.path),
        "n_bytes": entry.n_bytes,
        "last_used": datetime.fromtimestamp(entry.last_used_s, UTC).isoformat(),
        "in_use": entry.in_use,
        "model": entry.model,
    }


def _packed_bytes(content: CacheContent) -> int:
    return sum(entry.n_bytes for entry in content.entries if entry.kind == "packed")


def _size(n_bytes: int) -> str:
    """A size for people."""
    power = max(1, min(3, (n_bytes.bit_length() - 1) // 10))
    return f"{n_bytes / 1024**power:,.1f} {'KMG'[power - 1]}iB"


@contextmanager
def _cache_errors(place: Path, what: str) -> Iterator[None]:
    """Turn an error of the disk into one that names the place."""
    try:
        yield
    except OSError as error:
        raise JobConfigError(
            f"{place} cannot be {what}: {error.strerror or error}; check its permissions and disk, "
            "or set TOKENMILL_CACHE to another folder"
        ) from error

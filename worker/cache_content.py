"""What lies in the cache folder: everything that tokenmill put there, and nothing else.

The folder may be any that TOKENMILL_CACHE names, so things are known by the form of their names: a
user's own folder beside them is neither listed nor removed.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from .cache_folder import cache_folder
from .file_in_use import is_in_use
from .open_files import open_files
from .packed_folder import TEMPORARY_PREFIX, PackedFolder, remove_unused
from .received_model import PARTIAL_PREFIX


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Something that is listed, used and removed as one.

    Attributes:
        name: its path below the cache folder, without the suffix of packed files.
        kind: packed, unfinished (a packed file being written), kernels, download, received (a model
            that another machine sent), partial (one that has not come to its end), hashes or
            tokenizers (both records of what was worked out of model files).
        path: of the file or folder.
        n_bytes: on disk.
        last_used_s: in seconds since 1970; of kernels and downloads as the disk records reading.
        in_use: whether a running process would miss it.
        model: of a packed file, the model it was made from; of a received one, its name.
    """

    name: str
    kind: str
    path: Path
    n_bytes: int
    last_used_s: float
    in_use: bool
    model: str | None = None


class CacheContent:
    """A look at the cache folder.

    Attributes:
        folder: the cache folder; it need not exist.
    """

    folder: Path

    def __init__(self) -> None:
        self.folder = cache_folder()

    @cached_property
    def entries(self) -> list[CacheEntry]:
        """List what is there now: packed files, kernels, downloads, hashes.

        Raises:
            OSError: a folder cannot be read.
        """
        return [
            *self._packed(),
            *self._unfinished(),
            *self._folders("kernels", "kernels", r"[0-9a-f]{20}"),
            *self._folders("download", "models", r".+-[0-9a-f]{12}"),
            *self._folders("download", "huggingface", r"models--.+"),
            *self._received("received", r"[0-9a-f]{64}"),
            *self._received("partial", rf"{re.escape(PARTIAL_PREFIX)}[0-9a-f]{{64}}"),
            *self._records("hashes"),
            *self._records("tokenizers"),
        ]

    def named(self, name: str) -> list[CacheEntry]:
        """Select by name: one entry, or all those in a folder."""
        return [
            entry
            for entry in self.entries
            if entry.name == name or entry.name.startswith(f"{name.rstrip('/')}/")
        ]

    def remove(self, entry: CacheEntry) -> bool:
        """Remove an entry; False when it stays because a running process would miss it.

        Raises:
            OSError: it cannot be removed.
        """
        if entry.kind in ("packed", "unfinished"):
            return remove_unused(entry.path)
        if entry.in_use:
            return False
        if entry.kind in ("hashes", "tokenizers"):
            for record in _records(entry.path):
                record.unlink(missing_ok=True)
        else:
            shutil.rmtree(entry.path)
        return True

    def _packed(self) -> Iterator[CacheEntry]:
        for info in PackedFolder().files():
            yield CacheEntry(
                name=f"packed/{info.path.stem}",
                kind="packed",
                path=info.path,
                n_bytes=info.n_bytes,
                last_used_s=info.last_used_s,
                in_use=info.in_use,
                model=info.model,
            )

    def _unfinished(self) -> Iterator[CacheEntry]:
        """Files that are being written, or were when their writer was killed."""
        for path in sorted((self.folder / "packed").glob(f"{TEMPORARY_PREFIX}*")):
            in_use = is_in_use(path)
            yield _entry(f"packed/{path.name}", "unfinished", path, [path], in_use=in_use)

    def _folders(self, kind: str, parent: str, pattern: str) -> Iterator[CacheEntry]:
        for path in sorted((self.folder / parent).glob("*")):
            if re.fullmatch(pattern, path.name) and path.is_dir():
                files = [file for file in path.rglob("*") if file.is_file()]
                yield _entry(f"{parent}/{path.name}", kind, path, files, in_use=self._is_used(path))

    def _received(self, kind: str, pattern: str) -> Iterator[CacheEntry]:
        for entry in self._folders(kind, "received", pattern):
            names = sorted(path.name for path in entry.path.iterdir())
            yield replace(entry, model=next(iter(names), None))

    def _records(self, kind: str) -> Iterator[CacheEntry]:
        path = self.folder / kind
        records = _records(path)
        if records:
            yield _entry(kind, kind, path, records, in_use=False)

    def _is_used(self, folder: Path) -> bool:
        """Tell whether a process has a file of the folder open: mapped, or its lock."""
        return any(file.is_relative_to(folder.resolve()) for file in self._open_files)

    @cached_property
    def _open_files(self) -> set[Path]:
        return open_files()


def _records(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if re.fullmatch(r"[0-9a-f]{64}", path.name)]


def _entry(name: str, kind: str, path: Path, files: Sequence[Path], *, in_use: bool) -> CacheEntry:
    stats = [file.lstat() for file in files]
    return CacheEntry(
        name=name,
        kind=kind,
        path=path,
        n_bytes=sum(stat.st_size for stat in stats),
        last_used_s=max((max(stat.st_atime, stat.st_mtime) for stat in stats), default=0.0),
        in_use=in_use,
    )

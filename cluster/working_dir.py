"""What `ray job submit --working-dir` would upload, before Ray packs it."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from ray._private.ray_constants import DASHBOARD_CLIENT_MAX_SIZE, RAY_RUNTIME_ENV_IGNORE_GITIGNORE
from ray._private.runtime_env import packaging

from .errors import JobConfigError

UPLOAD_LIMIT_BYTES: Final = DASHBOARD_CLIENT_MAX_SIZE
"""Of a job that is submitted: the head's dashboard answers 413 to more."""

_ENTRY_BYTES: Final = 30 + 46  # headers of a zip entry, its name twice besides
_MIB: Final = 1 << 20
_SILENT: Final = logging.Logger("ray's walk", logging.CRITICAL + 1)  # it speaks when it packs


@dataclass(frozen=True, slots=True)
class Upload:
    """What would be uploaded.

    Attributes:
        folder: the working directory.
        num_files: how many files.
        n_bytes: size of the package; Ray does not compress.
        largest: the largest file, below the folder; None in an empty one.
        largest_bytes: its size.
    """

    folder: Path
    num_files: int
    n_bytes: int
    largest: Path | None
    largest_bytes: int

    def __str__(self) -> str:
        text = f"{_mib(self.n_bytes)} in {self.num_files} files of {self.folder}"
        if self.largest is None:
            return text
        return f"{text}, the largest {self.largest} ({_mib(self.largest_bytes)})"


def checked_upload(folder: Path, runtime_env: Path | None = None) -> Upload:
    """Measure a working directory as Ray would pack it.

    Args:
        folder: the working directory; its .gitignore and .rayignore count, those below it, too.
        runtime_env: a YAML file whose ``excludes`` count.

    Raises:
        JobConfigError: it cannot be read, or is larger than what a job may upload; size, limit and
            largest file are named.
    """
    upload = _measure(folder, _excludes(runtime_env))
    if upload.n_bytes >= UPLOAD_LIMIT_BYTES:
        raise JobConfigError(
            f"ray job submit would upload {upload}; the limit is {_mib(UPLOAD_LIMIT_BYTES)}. "
            f"Exclude models and data by lines in {folder / '.rayignore'} (or excludes of the "
            "runtime_env, as in configs/runtime_env.yaml), and give their absolute paths in the "
            "job: the nodes get the model by themselves"
        )
    return upload


def _measure(folder: Path, excludes: Sequence[str]) -> Upload:
    if not folder.is_dir():
        raise JobConfigError(f"working directory {folder}: there is no such folder; name another")
    root = folder.absolute()
    sizes: dict[Path, int] = {}

    def measure(path: Path) -> None:
        if path.is_file():
            sizes[path.relative_to(root)] = path.stat().st_size

    try:
        _travel(root, excludes, measure)
    except OSError as error:
        raise JobConfigError(
            f"working directory {folder}: {error.filename} cannot be read: {error.strerror}; "
            "exclude it, or change its permissions"
        ) from error
    names = sum(len(os.fsencode(path)) for path in sizes)
    largest = max(sizes, key=lambda path: sizes[path], default=None)
    return Upload(
        folder=folder,
        num_files=len(sizes),
        n_bytes=sum(sizes.values()) + _ENTRY_BYTES * len(sizes) + 2 * names,
        largest=largest,
        largest_bytes=sizes[largest] if largest is not None else 0,
    )


def _travel(root: Path, excludes: Sequence[str], handler: Callable[[Path], None]) -> None:
    """Call a function for each path that Ray would take: its own walk, and its own patterns."""
    include_gitignore = os.environ.get(RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1"
    patterns = [packaging._get_excludes(root, list(excludes))]
    packaging._dir_travel(root, patterns, handler, include_gitignore, _SILENT)


def _excludes(runtime_env: Path | None) -> Sequence[str]:
    if runtime_env is None:
        return ()
    try:
        value = yaml.safe_load(runtime_env.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).split("\n", 1)[0]
        raise JobConfigError(f"{runtime_env}: cannot be read: {reason}; check the file") from error
    excludes = value.get("excludes", []) if isinstance(value, dict) else None
    if not isinstance(excludes, list) or not all(isinstance(each, str) for each in excludes):
        raise JobConfigError(
            f"{runtime_env}: excludes is {excludes!r}, expected a list of patterns in a mapping"
        )
    return excludes


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / _MIB:,.1f} MiB"

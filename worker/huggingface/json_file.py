"""Small JSON files of a checkpoint folder, which is not trusted."""

import json
from pathlib import Path
from typing import Any

from worker.errors import CheckpointError
from worker.gguf.wording import shown

MAX_CONFIG_BYTES = 1 << 20
MAX_INDEX_BYTES = 1 << 23  # of a model with 70,000 tensors
# A file of nothing but brackets would take 30 times its size when it is parsed.
_MOST_CONTAINERS = 1 << 13


def read_json(path: Path, max_bytes: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Args:
        path: of the file.
        max_bytes: most bytes that such a file may have.

    Raises:
        CheckpointError: it is missing, too large or no JSON object.
    """
    content = _read(path, max_bytes)
    if content.count(b"[") + content.count(b"{") > _MOST_CONTAINERS:
        raise _unsound(path, f"it has more than {_MOST_CONTAINERS} lists and objects")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _unsound(path, f"it is no JSON text ({shown(str(error))})") from None
    if not isinstance(value, dict):
        raise _unsound(path, f"it holds {shown(value)}, expected an object")
    return value


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        if not path.is_file():  # a pipe would block open() for ever
            raise CheckpointError(
                f"{path}: there is no such file; a checkpoint folder needs it: copy or download "
                "the folder again"
            )
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be read: {error.strerror or error}; check its permissions and the disk"
        ) from error
    if len(content) > max_bytes:
        raise _unsound(path, f"it has {path.stat().st_size} bytes, expected at most {max_bytes}")
    return content


def _unsound(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: {problem}; copy or download the file again")

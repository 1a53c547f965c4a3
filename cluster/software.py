"""What has to be the same on every machine of a job, told before anything depends on it.

Operating system and kind of CPU are not among it: integer kernels give the same bits everywhere,
and float ones tell their own identity once the model is loaded.
"""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from .manifest import NUMERICS_VERSION
from .version import VERSION

_ROOT: Final = Path(__file__).resolve().parents[1]
_PACKAGES: Final = ("cluster", "worker", "kvpool")
_DIGITS: Final = 16

_FIXES: Final = {
    "kernels": "use the same files and the same llvmlite on all machines",
    "code": "use the same files on all machines, or ray job submit --working-dir",
}
_FIX: Final = "install the same version on all machines"


@cache
def own_software() -> Mapping[str, str | int]:
    """Say what this process runs: tokenmill, numerics, Python, NumPy, Numba, kernels, code.

    Of Python, the version that decides what text is (3.11, not 3.11.7). ``kernels`` and ``code``
    are hashes of the sources, ``kernels`` with the version of the compiler.
    """
    return {
        "tokenmill": VERSION,
        "numerics_version": NUMERICS_VERSION,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "kernels": sources_hash(_ROOT, ["worker/kernels"], version("llvmlite")),
        "code": sources_hash(_ROOT, _PACKAGES),
    }


def difference(theirs: Mapping[str, object]) -> str | None:
    """Say what is another thing there than here, both values and the fix; None if nothing is."""
    for name, own in own_software().items():
        there = theirs.get(name, "not told")
        if there != own:
            fix = _FIXES.get(name, _FIX)
            return f"{name} is {there} there and {own} at the driver; {fix}"
    return None


def sources_hash(root: Path, folders: Sequence[str], *words: str) -> str:
    """Hash names and content of all Python files in these folders of ``root``: 16 hex digits."""
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for folder in folders:
        for source in sorted((root / folder).rglob("*.py")):
            name = source.relative_to(root).as_posix()
            content = source.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_DIGITS]

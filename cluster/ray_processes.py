"""The processes of an embedded Ray."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import ray

_PACKAGE: Final = str(Path(ray.__file__).parent)


@contextmanager
def ray_processes_ended() -> Iterator[None]:
    """Kill what the block leaves of the embedded Ray that there is before it.

    Ray's agents would notice only after a minute that their node is gone.
    """
    processes = _ray_processes()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _ray_processes() -> list[psutil.Process]:
    """Children of this process that Ray's package runs, with all that they started."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if any(word.startswith(_PACKAGE) for word in child.cmdline()):
                found += [child, *child.children(recursive=True)]
    return found

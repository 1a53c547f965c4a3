"""The control groups this process is in, which may limit memory and processor time (Linux)."""

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def own_group() -> str:
    """This process's version 2 group; ``/`` where there are none, as on macOS."""
    return group_in(_OWN.read_text()) if _OWN.is_file() else "/"


def group_in(listing: str) -> str:
    """The version 2 group in a ``/proc/self/cgroup``: the line that begins with ``0::``."""
    return next((line[3:] for line in listing.splitlines() if line.startswith("0::")), "/")


def group_folders(root: Path, own: str) -> list[Path]:
    """Folders of the group ``own`` and of those around it, up to ``root``: each may have limits."""
    group = root / own.lstrip("/")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(root))]

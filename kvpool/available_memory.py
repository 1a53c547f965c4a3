"""Memory that this process can still take."""

from pathlib import Path

import psutil

from . import control_groups


def available_memory() -> int:
    """Bytes this process can still take: the machine's, or its control groups' if fewer."""
    machine = int(psutil.virtual_memory().available)
    return min([machine, *cgroup_headroom(control_groups.ROOT, control_groups.own_group())])


def memory_limit() -> int:
    """Bytes there are for this process: the machine's memory, or its control groups' if less."""
    machine = int(psutil.virtual_memory().total)
    return min([machine, *cgroup_limits(control_groups.ROOT, control_groups.own_group())])


def cgroup_limits(root: Path, own: str) -> list[int]:
    """The limits of which `cgroup_headroom` says how much is left."""
    limits = (_read_integer(path) for path, _, _ in _limit_files(root, own))
    return [limit for limit in limits if limit is not None]


def cgroup_headroom(root: Path, own: str) -> list[int]:
    """Bytes left under each limit from the group ``own`` up to ``root``.

    Reads control groups version 2 (``memory.max``) and the version 1 limit at the root of the
    memory controller, which is what a container sees of itself.
    """
    return [
        max(0, limit - _in_use(used, stat))
        for path, used, stat in _limit_files(root, own)
        if (limit := _read_integer(path)) is not None
    ]


def _limit_files(root: Path, own: str) -> list[tuple[Path, Path, Path]]:
    """Of each group, the files with its limit, its use and what that consists of."""
    v1 = root / "memory"
    return [
        *(
            (path / "memory.max", path / "memory.current", path / "memory.stat")
            for path in control_groups.group_folders(root, own)
        ),
        (v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat"),
    ]


def _in_use(usage: Path, stat: Path) -> int:
    """Bytes in use, without file pages that the kernel drops when memory runs short."""
    lines = stat.read_text().splitlines() if stat.is_file() else []
    counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
    droppable = int(counts.get("inactive_file", 0)) + int(counts.get("active_file", 0))
    return max(0, (_read_integer(usage) or 0) - droppable)


def _read_integer(path: Path) -> int | None:
    """The number in a control file; None where there is no such file or no limit (``max``)."""
    text = path.read_text().strip() if path.is_file() else ""
    return int(text) if text.isdecimal() else None

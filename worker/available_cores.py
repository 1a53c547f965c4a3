"""Cores that this process can keep busy."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from kvpool import control_groups

_SYSCTL: Final = "/usr/sbin/sysctl"
_PERFORMANCE_CORES: Final = "hw.perflevel0.physicalcpu"
_ALL_CORES: Final = "hw.physicalcpu"


def available_cores() -> int:
    """Cores for this process: those it may run on, or what its control groups grant if fewer.

    A container "with one CPU" may run on all cores, but is stopped for the rest of each 100 ms
    once it has used its share: a second thread would only make the first wait.
    """
    if sys.platform == "darwin":
        return performance_cores()
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quotas = cgroup_quotas(control_groups.ROOT, control_groups.own_group())
    return max(1, int(min([cores, *quotas])))


def performance_cores() -> int:
    """Performance cores of a Mac; on one with Intel, whose cores are all alike, all of them.

    The threads of a step wait for the slowest of them, and a product of matrices takes an
    efficiency core several times as long.
    """
    for name in (_PERFORMANCE_CORES, _ALL_CORES):
        command = [_SYSCTL, "-n", name]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        if answer.isdecimal() and int(answer) > 0:
            return int(answer)
    return os.cpu_count() or 1


def cgroup_quotas(root: Path, own: str) -> list[float]:
    """Cores granted by each limit from the group ``own`` up to ``root``.

    Reads control groups version 2 (``cpu.max``) and the version 1 limit at the root of the cpu
    controller, which is what a container sees of itself.
    """
    pairs = [_numbers(folder / "cpu.max") for folder in control_groups.group_folders(root, own)]
    v1 = root / "cpu"
    pairs.append([*_numbers(v1 / "cpu.cfs_quota_us"), *_numbers(v1 / "cpu.cfs_period_us")])
    return [pair[0] / pair[1] for pair in pairs if len(pair) == 2]


def _numbers(path: Path) -> list[int]:
    """The positive numbers in a control file; ``max`` and -1 stand for no limit."""
    words = path.read_text().split() if path.is_file() else []
    return [int(word) for word in words if word.isdecimal() and int(word) > 0]

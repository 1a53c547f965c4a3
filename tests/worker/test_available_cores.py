"""Available cores: affinity and the limits of control groups."""

import os
import subprocess
import sys

import pytest

from kvpool import control_groups
from worker.available_cores import available_cores, cgroup_quotas


def _limit(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_limits_of_the_group_and_its_parents_count(tmp_path):
    """Quota by period, for each group on the way up; ``max`` is no limit."""
    _limit(tmp_path / "job/step", "cpu.max", "150000 100000\n")
    _limit(tmp_path / "job", "cpu.max", "max 100000\n")
    _limit(tmp_path, "cpu.max", "200000 50000\n")
    assert cgroup_quotas(tmp_path, "/job/step") == [1.5, 4.0]


@pytest.mark.parametrize(("quota", "expected"), [("50000\n", [0.5]), ("-1\n", [])])
def test_version_1_limit_counts(tmp_path, quota, expected):
    """Two files of the cpu controller; -1 is no limit."""
    _limit(tmp_path / "cpu", "cpu.cfs_quota_us", quota)
    _limit(tmp_path / "cpu", "cpu.cfs_period_us", "100000\n")
    assert cgroup_quotas(tmp_path, "/") == expected


@pytest.mark.parametrize(
    ("limit", "cores"), [("max", 8), ("800000", 8), ("1600000", 8), ("250000", 2), ("50000", 1)]
)
def test_a_container_gets_the_whole_cores_it_was_granted(tmp_path, monkeypatch, limit, cores):
    """Eight cores to run on, fewer by quota: rounded down, at least one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(control_groups, "ROOT", tmp_path)
    monkeypatch.setattr(control_groups, "own_group", lambda: "/")
    _limit(tmp_path, "cpu.max", f"{limit} 100000\n")
    assert available_cores() == cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_affinity_counts():
    """A process held to one core has one."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"hw.perflevel0.physicalcpu": "8", "hw.physicalcpu": "12"}, 8),
        ({"hw.physicalcpu": "6"}, 6),
        ({"hw.perflevel0.physicalcpu": "0"}, 10),
        ({}, 10),
    ],
    ids=["Apple silicon", "Intel", "nonsense", "no answer"],
)
def test_a_mac_counts_its_performance_cores(monkeypatch, answers, expected):
    """What sysctl says; without levels all cores, without any answer what Python counts."""

    def run(command, **_):
        known = command[-1] in answers
        return subprocess.CompletedProcess(command, not known, answers.get(command[-1], "") + "\n")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert expected == available_cores()

"""Available memory: the machine's and its control groups'."""

from types import SimpleNamespace

import psutil

from kvpool import control_groups
from kvpool.available_memory import (
    available_memory,
    cgroup_headroom,
    cgroup_limits,
    memory_limit,
)


def _write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def test_limits_of_the_group_and_its_parents_count(tmp_path):
    """Each group on the way up bounds what is left; file pages do not count as used."""
    _write(tmp_path / "job/step", memory_max="1000\n", memory_current="400\n")
    _write(
        tmp_path / "job",
        memory_max="900\n",
        memory_current="700\n",
        memory_stat="anon 100\ninactive_file 250\nactive_file 50\n",
    )
    assert cgroup_headroom(tmp_path, "/job/step") == [600, 500]
    assert cgroup_limits(tmp_path, "/job/step") == [1000, 900]


def test_no_limit_is_no_bound(tmp_path):
    """``max`` means that the group has no limit."""
    _write(tmp_path, memory_max="max\n", memory_current="5\n")
    assert cgroup_headroom(tmp_path, "/") == []


def test_group_above_its_limit_has_nothing_left(tmp_path):
    """A group over its limit leaves 0 bytes, never fewer."""
    _write(tmp_path, memory_max="10\n", memory_current="50\n")
    assert cgroup_headroom(tmp_path, "/") == [0]


def test_version_1_limit_counts(tmp_path):
    """The limit file of control groups version 1 is read as well."""
    _write(tmp_path / "memory")
    (tmp_path / "memory/memory.limit_in_bytes").write_text("300")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("100")
    assert cgroup_headroom(tmp_path, "/") == [200]


def test_this_machine_has_memory():
    """The figure is plausible here."""
    assert 1 << 20 < available_memory() < memory_limit() < 1 << 50


def test_a_mac_has_what_it_says_is_available(tmp_path, monkeypatch):
    """There are no control groups; free and inactive pages are what macOS calls available."""
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "absent")
    monkeypatch.setattr(control_groups, "_OWN", tmp_path / "absent/cgroup")
    found = SimpleNamespace(available=7 << 30, total=16 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: found)
    assert (7 << 30, 16 << 30) == (available_memory(), memory_limit())

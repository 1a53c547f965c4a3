"""Control groups: where this process is, and which folders may limit it."""

from pathlib import Path

from kvpool import control_groups


def test_version_2_group_is_found_among_others():
    """Its line begins with 0:: and names a path; version 1 lines are not looked at."""
    listing = "3:cpu,cpuacct:/old\n0::/user.slice/job\n"
    assert control_groups.group_in(listing) == "/user.slice/job"
    assert control_groups.group_in("3:cpu:/old\n") == "/"


def test_groups_around_count_up_to_the_root():
    """Every group from the own one up to the root of the file system, which is left at that."""
    root = Path("/sys/fs/cgroup")
    assert control_groups.group_folders(root, "/a/b") == [root / "a/b", root / "a", root]
    assert control_groups.group_folders(root, "/") == [root]

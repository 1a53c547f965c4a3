"""Where the cache folder lies."""

import sys
from pathlib import Path

import pytest

from worker.cache_folder import cache_folder


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("TOKENMILL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.mark.parametrize(
    ("variables", "platform", "expected"),
    [
        ({}, "linux", "/home/ada/.cache/tokenmill"),
        ({"XDG_CACHE_HOME": "/var/c"}, "linux", "/var/c/tokenmill"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/ada/.cache/tokenmill"),
        ({"XDG_CACHE_HOME": ""}, "linux", "/home/ada/.cache/tokenmill"),
        ({}, "darwin", "/home/ada/Library/Caches/tokenmill"),
        ({"TOKENMILL_CACHE": "/data/t"}, "darwin", "/data/t"),
        ({"TOKENMILL_CACHE": "~/t", "XDG_CACHE_HOME": "/var/c"}, "linux", "/home/ada/t"),
    ],
)
def test_the_folder_follows_the_variables_and_the_system(
    monkeypatch, variables, platform, expected
):
    """Our own variable wins, then the system's custom."""
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Path(expected) == cache_folder()

import importlib
import resource
import sys
from types import SimpleNamespace

import pytest

from cluster import peak_memory


@pytest.fixture
def platform(monkeypatch):
    """Load the module as on another system."""

    def load(name, max_rss):
        monkeypatch.setattr(sys, "platform", name)
        monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=max_rss))
        return importlib.reload(peak_memory)

    yield load
    monkeypatch.undo()
    importlib.reload(peak_memory)


@pytest.mark.parametrize(
    ("name", "max_rss"), [("darwin", 3 << 30), ("linux", 3 << 20)], ids=["bytes", "KiB"]
)
def test_the_peak_is_in_bytes_on_every_system(platform, name, max_rss):
    """Bytes are what macOS counts, where Linux counts KiB."""
    assert 3 << 30 == platform(name, max_rss).peak_rss_bytes()

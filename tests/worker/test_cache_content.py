"""What the cache folder holds, and what may go."""

import subprocess
import sys

import pytest

from worker.cache_content import CacheContent
from worker.file_in_use import hold_shared

from . import cached_things as things


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder with one thing of each kind."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    things.fill(tmp_path / "cache", tmp_path)
    return tmp_path / "cache"


def test_everything_of_ours_is_listed_and_nothing_else(cache):
    """With its kind; things of other names are the user's."""
    entries = CacheContent().entries
    assert {
        things.packed_name(cache): "packed",
        "packed/.writing-abc": "unfinished",
        f"kernels/{things.KERNELS}": "kernels",
        f"models/{things.MODEL}": "download",
        f"huggingface/{things.HUB}": "download",
        "hashes": "hashes",
        "tokenizers": "tokenizers",
    } == {entry.name: entry.kind for entry in entries}
    assert not any(entry.in_use for entry in entries)
    by_name = {entry.name: entry for entry in entries}
    assert "small.gguf" == by_name[things.packed_name(cache)].model
    model = by_name[f"models/{things.MODEL}"]
    stat = (cache / model.name / "m.gguf").stat()
    assert (8000, max(stat.st_atime, stat.st_mtime)) == (model.n_bytes, model.last_used_s)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path, monkeypatch):
    """And is not made by looking at it."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    assert [] == CacheContent().entries
    assert not (tmp_path / "cache").exists()


def test_removing_everything_leaves_what_is_the_users(cache):
    """The limit is a setting and stays, too."""
    content = CacheContent()
    assert all(content.remove(entry) for entry in content.entries)
    assert things.files(cache) == things.KEPT
    assert [] == CacheContent().entries


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("packed", {"packed", "unfinished"}),
        ("packed/", {"packed", "unfinished"}),
        ("hashes", {"hashes"}),
        (f"models/{things.MODEL}", {"download"}),
        ("models/dist", set()),
        ("notes.txt", set()),
        ("..", set()),
    ],
)
def test_names_select_one_or_a_folder(cache, name, kinds):
    """Nothing by a part of a name, nothing that is not listed."""
    assert kinds == {entry.kind for entry in CacheContent().named(name)}


def test_what_is_in_use_stays(cache):
    """A mapped packed file, one that is being written, a model that a process has open."""
    names = [things.packed_name(cache) + ".packed", "packed/.writing-abc"]
    first, second = ((cache / name).open("rb") for name in names)
    model = cache / "models" / things.MODEL / "m.gguf"
    script = "import sys, time; f = open(sys.argv[1]); print(1, flush=True); time.sleep(600)"
    command = [sys.executable, "-c", script, str(model)]
    with first, second, subprocess.Popen(command, stdout=subprocess.PIPE) as user:
        user.stdout.readline()
        hold_shared(first)
        hold_shared(second)
        content = CacheContent()
        used = [entry for entry in content.entries if entry.in_use]
        assert {"packed", "unfinished", "download"} == {entry.kind for entry in used}
        assert not any(content.remove(entry) for entry in used)
        user.kill()
    assert model.exists()
    assert not any(entry.in_use for entry in CacheContent().entries)

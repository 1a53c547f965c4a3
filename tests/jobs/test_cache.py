"""``tokenmill cache``: ls, rm and limit."""

import json
import re

import pytest

from tests.worker import cached_things as things
from worker.file_in_use import hold_shared


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder with one thing of each kind."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    things.fill(tmp_path / "cache", tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A folder that is not there yet."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_ls_lists_what_is_there(cache, invoke):
    """Name, size, time, use and meaning, a line each; then the limit and the folder."""
    result = invoke("cache", "ls")
    assert 0 == result.exit_code, result.stderr
    lines = result.stdout.splitlines()
    assert ["name", "size", "last", "used", "in", "use", "what"] == lines[0].split()
    [packed] = [line for line in lines if line.startswith(things.packed_name(cache))]
    assert packed.endswith("no  packed weights of small.gguf")
    [model] = [line for line in lines if line.startswith(f"models/{things.MODEL}")]
    assert " 7.8 KiB " in model
    assert "of at most 976.6 KiB (as set; `tokenmill cache limit SIZE` changes it)" in lines[-2]
    assert f"all of this lies in {cache}" == lines[-1]
    assert len(lines) == 1 + 7 + 1 + 2


def test_ls_says_which_models_a_driver_sent_whole_or_in_part(cache, invoke):
    """By the names of their files; rm takes them by the name that is listed."""
    for name in ("received/" + "a" * 64 + "/m.gguf", "received/.partial-" + "b" * 64 + "/n.gguf"):
        (cache / name).parent.mkdir(parents=True)
        (cache / name).write_bytes(b"GGUF")
    lines = invoke("cache", "ls").stdout.splitlines()
    whole, part = sorted(line for line in lines if line.startswith("received/"))[::-1]
    assert whole.endswith("model m.gguf that a driver sent")
    assert part.endswith("part of a model that a driver sent, n.gguf")
    assert 0 == invoke("cache", "rm", whole.split()[0], part.split()[0]).exit_code
    assert [] == list((cache / "received").iterdir())


def test_ls_as_json_has_every_figure(cache, invoke):
    """For programs: bytes, times with their zone, paths."""
    result = invoke("cache", "ls", "-o", "json")
    found = json.loads(result.stdout)
    assert (0, str(cache), 1_000_000) == (
        result.exit_code,
        found["folder"],
        found["packed_limit_bytes"],
    )
    assert found["packed_limit_is_set"]
    by_name = {entry.pop("name"): entry for entry in found["entries"]}
    assert 7 == len(by_name)
    packed = by_name[things.packed_name(cache)]
    assert found["packed_bytes"] == packed["n_bytes"]
    assert packed.pop("last_used").endswith("+00:00")
    assert {
        "kind": "packed",
        "path": f"{cache}/{things.packed_name(cache)}.packed",
        "n_bytes": packed["n_bytes"],
        "in_use": False,
        "model": "small.gguf",
    } == packed


def test_ls_of_an_empty_cache_names_the_folder(empty, invoke):
    """No table, no error, and no folder is made."""
    result = invoke("cache", "ls")
    assert 0 == result.exit_code
    assert "packed weights take 0.0 KiB of at most" in result.stdout
    assert result.stdout.endswith(f"all of this lies in {empty}\n")
    assert not empty.exists()


def test_rm_removes_what_is_named(cache, invoke):
    """And says what that was."""
    before, name = things.files(cache), things.packed_name(cache)
    result = invoke("cache", "rm", name, f"kernels/{things.KERNELS}")
    assert 0 == result.exit_code, result.stderr
    assert f"removed {name}, " in result.stdout
    gone = {f"{name}.packed", f"kernels/{things.KERNELS}/a.nbc"}
    assert gone == before - things.files(cache)


def test_rm_all_removes_everything_of_ours(cache, invoke):
    """The user's own files beside it stay."""
    result = invoke("cache", "rm", "--all")
    assert (0, things.KEPT) == (result.exit_code, things.files(cache))
    assert 7 == result.stdout.count("removed ")
    assert result.stdout.splitlines()[-1].startswith("freed ")
    assert (0, "freed 0.0 KiB\n") == (
        invoke("cache", "rm", "--all").exit_code,
        invoke("cache", "rm", "--all").stdout,
    )


@pytest.mark.parametrize(("how", "code"), [("--all", 0), ("packed", 75)])
def test_rm_keeps_what_is_in_use_and_says_so(cache, invoke, how, code):
    """With --all that is meant; a name asked for it, so the command has not done its work."""
    name = things.packed_name(cache)
    with (cache / f"{name}.packed").open("rb") as file:
        hold_shared(file)
        result = invoke("cache", "rm", how)
    assert code == result.exit_code
    assert f"kept {name}: a running process uses it" in result.stdout
    assert "removed packed/.writing-abc" in result.stdout
    assert (cache / f"{name}.packed").exists()
    assert ("1 of 2 stay" in result.stderr) == (code == 75)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "or --all"),
        (("hashes", "--all"), "or --all"),
        (("packed/none",), "nothing in .* is called 'packed/none'"),
        (("hashes", "../x"), "nothing in .* is called '../x'"),
    ],
)
def test_rm_of_nothing_or_anything_else_is_a_usage_error(cache, invoke, arguments, words):
    """Nothing is removed, not even what was named rightly."""
    before = things.files(cache)
    result = invoke("cache", "rm", *arguments)
    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert re.search(words, result.stderr)
    assert before == things.files(cache)


def test_limit_is_kept_and_taken_back(empty, invoke):
    """Printed each time."""
    assert "half of what is free on the disk" in invoke("cache", "limit").stdout
    assert "at most 1.5 GiB (as set" in invoke("cache", "limit", "1.5GiB").stdout
    assert "at most 1.5 GiB (as set" in invoke("cache", "limit").stdout
    assert "half of what is free on the disk" in invoke("cache", "limit", "default").stdout


def test_a_limit_below_what_is_there_says_what_follows(cache, invoke):
    """Nothing is removed by setting it."""
    result = invoke("cache", "limit", "0")
    assert 0 == result.exit_code
    assert "the least recently used are removed when the next are written" in result.stdout
    assert (cache / f"{things.packed_name(cache)}.packed").exists()


@pytest.mark.parametrize(
    ("size", "n_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("2kb", 2000),
        ("2 KiB", 2048),
        ("1.5M", 3 << 19),
        ("20GB", 20 * 10**9),
        ("1T", 1 << 40),
        ("1TB", 10**12),
    ],
)
def test_sizes_have_units(empty, invoke, size, n_bytes):
    """Powers of 1000 and of 1024, as people write them."""
    assert 0 == invoke("cache", "limit", size).exit_code
    found = json.loads(invoke("cache", "ls", "-o", "json").stdout)
    assert n_bytes == found["packed_limit_bytes"]


@pytest.mark.parametrize("size", ["", "x", "1x", "-1", "1.2.3", "GB", "1PB", "0x10", "nan"])
def test_other_sizes_are_usage_errors(empty, invoke, size):
    """The message shows how a size looks."""
    result = invoke("cache", "limit", "--", size)
    assert 2 == result.exit_code
    assert f"the limit is {size!r}, expected a size such as 20GB" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "place", "words"),
    [
        (("ls",), "", "read"),
        (("limit", "1G"), "", "written"),
        (("rm", "hashes"), "/hashes", "removed"),
        (("rm", f"kernels/{things.KERNELS}"), f"/kernels/{things.KERNELS}", "removed"),
    ],
)
def test_a_disk_that_fails_is_one_clear_line(cache, invoke, monkeypatch, arguments, place, words):
    """The place, the reason and the fix."""

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied", "x")

    if words == "read":
        monkeypatch.setattr("worker.packed_folder.PackedFolder.files", fail)
    monkeypatch.setattr("worker.packed_folder.PackedFolder.set_limit", fail)
    monkeypatch.setattr("shutil.rmtree", fail)
    monkeypatch.setattr("pathlib.Path.unlink", fail)
    result = invoke("cache", *arguments)
    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    expected = f"{cache}{place} cannot be {words}: Permission denied; check its permissions and"
    assert expected in result.stderr


def test_help_lists_what_it_can_do(invoke):
    """For the verb and for each of its own."""
    result = invoke("cache", "--help")
    assert 0 == result.exit_code
    assert all(verb in result.stdout for verb in ("ls", "rm", "limit"))
    assert all(0 == invoke("cache", verb, "--help").exit_code for verb in ("ls", "rm", "limit"))

"""Packed weights in the cache folder and in memory."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.worker.kernels import naive_pack
from worker import packed_file, packed_writer
from worker.cache_folder import cache_folder
from worker.errors import GGUFError
from worker.packed_file import open_packed
from worker.packed_folder import PackedFolder, remove_unused
from worker.thread_team import ThreadTeam

from .packed_models import NAMES, TENSORS, open_model, write_model

ROOT = Path(__file__).parents[2]
PACKING = "packing 4 tensors"
OPEN = """
import logging, sys
from worker.gguf import GGUFFile
from worker.packed_file import open_packed
from worker.thread_team import ThreadTeam
logging.basicConfig(level=logging.INFO)
with ThreadTeam(1) as team:
    weights = open_packed(GGUFFile.open(sys.argv[1]), sys.argv[2:], team)
print(weights.from_file, flush=True)
"""


@pytest.fixture(scope="session")
def kernels():
    """Where this session's machine code is cached."""
    return cache_folder() / "kernels"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of its own, whose warnings are errors unless a test expects them."""
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield tmp_path / "cache"


@pytest.fixture(scope="module")
def team():
    """Two threads."""
    with ThreadTeam(2) as team:
        yield team


@pytest.fixture
def run(tmp_path, cache, kernels):
    """The command that opens a small model in a process of its own, which compiles nothing."""
    cache.mkdir()
    (cache / "kernels").symlink_to(kernels)

    def run(prepare: str = "") -> subprocess.Popen:
        main, packing = OPEN.split("with ThreadTeam")
        script = f"{main}{prepare}with ThreadTeam{packing}"
        command = [sys.executable, "-c", script, str(write_model(tmp_path)), *NAMES]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=ROOT, **pipes)

    return run


@pytest.fixture
def folder():
    """The folder of packed files."""
    return PackedFolder()


def assert_right(weights, model):
    """Every tensor stands for the values of the file."""
    for name, qtype, rows, columns in TENSORS:
        tensor, raw = weights.tensor(name), model.raw(name)
        assert (qtype, rows, columns) == (tensor.qtype, tensor.rows, tensor.columns)
        packed = tensor.data.reshape(-1)
        if qtype.name == "F16":
            found = naive_pack.float_values(packed, np.uint16, columns)[:rows]
            assert np.array_equal(raw.view(np.uint16), found)
        else:
            with np.errstate(all="ignore"):
                expected = gguf.quants.dequantize(raw, qtype)
            found = naive_pack.values(packed, qtype.name, columns)[:rows]
            assert np.array_equal(expected, found, equal_nan=True)


def test_the_first_packs_and_the_next_map_its_file(tmp_path, team, folder, caplog):
    """The same bytes, and nothing is packed again."""
    caplog.set_level("INFO")
    model = open_model(tmp_path)
    first = open_packed(model, NAMES, team)
    assert (1, True) == (caplog.text.count(PACKING), first.from_file)
    assert_right(first, model)
    [before] = folder.files()
    second = open_packed(model, NAMES, team)
    assert (1, True) == (caplog.text.count(PACKING), second.from_file)
    assert_right(second, model)
    [after] = folder.files()
    assert (before.path, before.n_bytes) == (after.path, after.n_bytes)
    assert "model.gguf" == after.model


@pytest.mark.parametrize("kept", [True, False])
def test_tensors_are_aligned_read_only_and_outlive_the_rest(tmp_path, team, cache, kept):
    """From the file and from memory: the address of a page, and bytes nobody can write."""
    if not kept:
        cache.write_text("a file, not a folder")
        warnings.simplefilter("ignore")
    weights = open_packed(open_model(tmp_path), NAMES, team)
    assert kept == weights.from_file
    tensors = [weights.tensor(name) for name in NAMES]
    assert sum(tensor.data.nbytes for tensor in tensors) <= weights.n_bytes
    del weights
    for tensor in tensors:
        assert 0 == tensor.address % 4096
        assert tensor.address == tensor.data.ctypes.data
        assert tensor.row_block_bytes * -(-tensor.rows // 16) == tensor.data.nbytes
        assert not tensor.data.flags.writeable
        assert tensor.data.any()


def test_pieces_of_a_tensor_fit_together(tmp_path, team, monkeypatch):
    """Threads pack a row block each, as they would pieces of a large tensor."""
    monkeypatch.setattr(packed_writer, "_PIECE_VALUES", 1)
    model = open_model(tmp_path)
    assert_right(open_packed(model, NAMES, team), model)


def test_the_models_pages_are_given_back(tmp_path, team, monkeypatch):
    """Of each packed tensor, and of no other."""
    released = []
    model = open_model(tmp_path)
    monkeypatch.setattr(model, "release", released.append)
    open_packed(model, NAMES[:3], team)
    assert set(NAMES[:3]) == set(released)


def test_copies_of_a_model_share_a_file(tmp_path, team, folder, caplog):
    """The content counts, wherever it lies and whatever it is called."""
    caplog.set_level("INFO")
    open_packed(open_model(tmp_path / "a"), NAMES, team)
    open_packed(open_model(tmp_path / "b", name="b.gguf"), NAMES, team)
    assert (1, 1) == (len(folder.files()), caplog.text.count(PACKING))


def test_a_model_replaced_by_another_is_packed_anew(tmp_path, team, folder):
    """Same path, size and tensors, other bytes."""
    open_packed(open_model(tmp_path), NAMES, team)
    model = open_model(tmp_path, seed=1)
    assert_right(open_packed(model, NAMES, team), model)
    assert 2 == len(folder.files())


def test_other_tensors_of_a_model_are_another_file(tmp_path, team, folder):
    """A version that packs other tensors does not take the wrong ones."""
    model = open_model(tmp_path)
    assert_right(open_packed(model, NAMES[::-1], team), model)
    weights = open_packed(model, NAMES[:2], team)
    assert 2 == len(folder.files())
    with pytest.raises(KeyError):
        weights.tensor(NAMES[2])


def test_a_missing_tensor_is_named(tmp_path, team):
    """Before anything is packed."""
    with pytest.raises(GGUFError, match=r"tensor gone\.weight is missing"):
        open_packed(open_model(tmp_path), ["gone.weight"], team)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "extended": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "foreign": lambda path: path.write_bytes(b"GGUF" * 5000),
    "magic": lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]),
    "version": lambda path: path.write_bytes(path.read_bytes().replace(b"\1", b"\2", 1)),
    "index": lambda path: path.write_bytes(path.read_bytes().replace(b"Q4_1", b"Q4_0", 1)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_packed_anew(tmp_path, team, folder, caplog, damage):
    """It is told, and the next process finds a sound file."""
    model = open_model(tmp_path)
    open_packed(model, NAMES, team)
    [info] = folder.files()
    DAMAGES[damage](info.path)
    assert_right(open_packed(model, NAMES, team), model)
    assert f"{info.path} is not used" in caplog.text
    caplog.clear()
    assert_right(open_packed(model, NAMES, team), model)
    assert "" == caplog.text


def test_a_file_of_another_content_is_not_believed(tmp_path, team, folder, caplog):
    """A sound file that was renamed by hand."""
    open_packed(open_model(tmp_path), NAMES, team)
    [first] = folder.files()
    model = open_model(tmp_path, seed=1)
    weights = open_packed(model, NAMES, team)
    [second] = [info for info in folder.files() if info.path != first.path]
    del weights
    first.path.replace(second.path)
    assert_right(open_packed(model, NAMES, team), model)
    assert "it is of other tensors" in caplog.text


def test_processes_at_once_pack_once(run):
    """The others wait for the first and map what it wrote."""
    running = [run() for _ in range(3)]
    outputs = [process.communicate() for process in running]
    assert ["True\n"] * 3 == [out for out, _ in outputs]
    assert 1 == sum(err.count(PACKING) for _, err in outputs)


@pytest.mark.parametrize("moment", ["os.pwrite", "os.fsync", "pathlib.Path.replace"])
def test_a_process_killed_while_packing_leaves_nothing_believed(
    tmp_path, run, team, folder, caplog, moment
):
    """Not a file, not a lock; its half file is cleared away by the next process."""
    hash_first = "from worker.file_hash import file_sha256\nfile_sha256(sys.argv[1])\n"
    kill = f"import os, pathlib\n{moment} = lambda *_: os.kill(os.getpid(), {signal.SIGKILL})\n"
    process = run(hash_first + kill)
    _, stderr = process.communicate()
    assert (-signal.SIGKILL, 1) == (process.returncode, stderr.count(PACKING)), stderr
    assert [] == folder.files()
    assert 1 == len(list(folder.path.glob(".writing-*")))
    caplog.set_level("INFO")
    model = open_model(tmp_path)
    assert_right(open_packed(model, NAMES, team), model)
    assert [] == list(folder.path.glob(".writing-*"))
    assert 1 == caplog.text.count(PACKING)


def _assert_in_memory(model, team, folder, match):
    """The weights are right, and one warning names folder, reason and fix."""
    with pytest.warns(RuntimeWarning, match=match) as caught:
        weights = open_packed(model, NAMES, team)
    assert not weights.from_file
    assert 1 == len(caught)
    assert str(folder.path) in str(caught[0].message)
    assert_right(weights, model)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("moment", ["pwrite", "fsync"])
def test_a_full_disk_costs_memory_and_leaves_nothing(
    tmp_path, team, folder, monkeypatch, error, moment
):
    """Whenever it is noticed."""

    def fail(*_):
        raise OSError(error, os.strerror(error))

    model = open_model(tmp_path)
    model.sha256()
    monkeypatch.setattr(f"os.{moment}", fail)
    _assert_in_memory(model, team, folder, rf"{os.strerror(error)}; free disk space, or set TOKEN")
    assert [".lock"] == [path.name for path in folder.path.iterdir()]


def test_a_folder_that_cannot_be_made_costs_memory(tmp_path, team, folder, cache):
    """A file stands where the folder should be."""
    cache.mkdir()
    folder.path.write_text("a file, not a folder")
    _assert_in_memory(open_model(tmp_path), team, folder, "set TOKENMILL_CACHE to a folder")


def test_a_limit_below_the_models_size_costs_memory(tmp_path, team, folder):
    """The fix is another one."""
    folder.set_limit(1000)
    pattern = r"more than packed files may take, 1,000 in all; raise it with `tokenmill cache limit"
    _assert_in_memory(open_model(tmp_path), team, folder, pattern)


def test_a_disk_with_little_room_costs_memory(tmp_path, team, folder, monkeypatch):
    """By default half of it is left free."""
    usage = shutil.disk_usage(tmp_path)._replace(free=2000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    pattern = r"may take, 1,000 in all; free disk space, or set a limit with `tokenmill cache limit"
    _assert_in_memory(open_model(tmp_path), team, folder, pattern)


def test_files_used_least_recently_make_room(tmp_path, team, folder):
    """Opening a file counts as use, writing it as well."""
    models = [open_model(tmp_path / str(seed), seed=seed) for seed in range(3)]
    for age, model in zip((300, 200), models[:2], strict=True):
        open_packed(model, NAMES, team)
        newest = folder.files()[0].path
        os.utime(newest, (time.time() - age,) * 2)
    open_packed(models[0], NAMES, team)
    [first, second] = folder.files()
    folder.set_limit(5 * first.n_bytes // 2)
    open_packed(models[2], NAMES, team)
    assert {first.path} == {info.path for info in folder.files()[1:]}
    assert not second.path.exists()


def test_a_file_is_in_use_as_long_as_a_tensor_of_it(tmp_path, team, folder):
    """Whether it was written or found; then it may be removed."""
    for _ in range(2):
        tensor = open_packed(open_model(tmp_path), NAMES, team).tensor(NAMES[0])
        [info] = folder.files()
        assert info.in_use
        assert not remove_unused(info.path)
        del tensor
    assert not folder.files()[0].in_use
    assert remove_unused(info.path)
    assert [] == folder.files()


def test_a_file_removed_while_it_is_opened_is_not_used(tmp_path, team, folder, monkeypatch):
    """It would be packed by the next process again, and shared with nobody."""
    model = open_model(tmp_path)
    open_packed(model, NAMES, team)
    real, removed = packed_file.hold_shared, []

    def remove_first(file):
        if not removed:
            removed.append(remove_unused(folder.files()[0].path))
        real(file)

    monkeypatch.setattr(packed_file, "hold_shared", remove_first)
    assert_right(open_packed(model, NAMES, team), model)
    assert ([True], 1) == (removed, len(folder.files()))


def test_a_model_changed_while_it_is_packed_is_an_error(tmp_path, team, folder, monkeypatch):
    """Nothing of it is kept."""
    model = open_model(tmp_path)
    real = type(model).release

    def change(file, name):
        write_model(tmp_path, seed=1)
        real(file, name)

    monkeypatch.setattr(type(model), "release", change)
    with pytest.raises(GGUFError, match="changed while it was in use"):
        open_packed(model, NAMES[-1:], team)
    assert [".lock"] == [path.name for path in folder.path.iterdir()]

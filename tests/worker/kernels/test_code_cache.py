"""The machine code of kernels on disk."""

import fcntl
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from worker.kernels import code_cache
from worker.kernels.code_cache import CodeCache

ROOT = Path(code_cache.__file__).parents[2]
COMPILE = """
import sys, time
from pathlib import Path
from worker.kernels.code_cache import CodeCache
cache = CodeCache(lambda: Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
with cache.turn():
    if cache.find("kernel") is None:
        print("compiling", flush=True)
        time.sleep(float(sys.argv[2]))
        cache.keep("kernel", b"code")
print(cache.compiled)
"""


def test_code_is_kept_for_the_next_process(tmp_path):
    """What is compiled is counted and found again; what is found is not counted."""
    first, second = CodeCache(lambda: tmp_path / "new"), CodeCache(lambda: tmp_path / "new")
    with first.turn():
        assert first.find("kernel") is None
        first.keep("kernel", b"code")
    with second.turn():
        assert b"code" == second.find("kernel")
    assert (1, 0) == (first.compiled, second.compiled)


def test_damaged_code_is_compiled_again(tmp_path, caplog):
    """Half a file, as a full disk leaves it, is no failure and is replaced."""
    cache = CodeCache(lambda: tmp_path)
    with cache.turn():
        cache.keep("kernel", b"code")
    (tmp_path / "kernel").write_bytes((tmp_path / "kernel").read_bytes()[:33])
    with caplog.at_level(logging.WARNING), cache.turn():
        assert cache.find("kernel") is None
        cache.keep("kernel", b"code")
        assert b"code" == cache.find("kernel")
    assert "damaged" in caplog.text


def test_one_process_compiles_and_the_others_wait(tmp_path):
    """Several processes that need a kernel at the same time compile it once."""
    processes = [_start(tmp_path, 0.3) for _ in range(3)]
    assert ["ready\n"] * 3 == [process.stdout.readline() for process in processes]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = sorted(process.communicate()[0].split()[-1] for process in processes)
    assert ["0", "0", "1"] == ends


def test_a_killed_compiler_holds_nobody_up(tmp_path):
    """The system lets go of its lock, and the next process compiles."""
    killed = _start(tmp_path, 600)
    killed.stdin.write("go\n")
    killed.stdin.flush()
    assert ["ready\n", "compiling\n"] == [killed.stdout.readline() for _ in range(2)]
    killed.kill()
    killed.communicate()
    cache = CodeCache(lambda: tmp_path)
    with cache.turn():
        assert cache.find("kernel") is None


def test_a_failed_compilation_holds_nobody_up(tmp_path):
    """Others are held up until the outermost turn ends, in whatever way."""
    cache = CodeCache(lambda: tmp_path)

    def fail():
        with cache.turn():
            with cache.turn():
                assert cache.find("inner") is None
            assert not _is_free(tmp_path / ".lock")
            raise TypeError("a kernel with a mistake")

    with pytest.raises(TypeError, match="mistake"):
        fail()
    assert _is_free(tmp_path / ".lock")


def test_finding_code_needs_no_lock(tmp_path):
    """A cache on a read-only disk serves what it holds and says nothing."""
    cache = CodeCache(lambda: tmp_path)
    with cache.turn():
        cache.keep("kernel", b"code")
    (tmp_path / ".lock").mkdir()  # opening it fails, whoever the tests run as
    with cache.turn():
        assert b"code" == cache.find("kernel")


def test_an_unusable_folder_costs_one_warning(tmp_path):
    """A cache that cannot be written: the caller compiles, and one warning says what to set."""
    (tmp_path / "cache").write_text("a file where the folder should be")
    cache = CodeCache(lambda: tmp_path / "cache")

    def compile_two():
        with cache.turn():
            for name in ("one", "two"):
                assert cache.find(name) is None
                cache.keep(name, b"code")

    words = "set TOKENMILL_CACHE to a folder that can be written"
    with pytest.warns(RuntimeWarning, match=words) as warned:
        compile_two()
    assert (1, 2) == (len(warned), cache.compiled)


@pytest.mark.parametrize("name", ["numba", "llvmlite"])
def test_the_folder_depends_on_the_compiler(name, monkeypatch):
    """Another version of Numba or LLVM must not load this one's code."""
    before = code_cache.kernel_cache_name()
    code_cache.kernel_cache_name.cache_clear()
    monkeypatch.setattr(getattr(code_cache, name), "__version__", "0.0.0")
    after = code_cache.kernel_cache_name()
    code_cache.kernel_cache_name.cache_clear()
    assert before != after


@pytest.mark.parametrize(
    ("setting", "value"), [("CPU_NAME", "nehalem"), ("CPU_FEATURES", "+sse2"), ("OPT", 0)]
)
def test_the_folder_depends_on_the_cpu_and_on_settings(setting, value, monkeypatch):
    """A container image may run on another CPU than the one it was made on."""
    before = code_cache.kernel_cache_name()
    code_cache.kernel_cache_name.cache_clear()
    monkeypatch.setattr(code_cache.config, setting, value)
    after = code_cache.kernel_cache_name()
    code_cache.kernel_cache_name.cache_clear()
    assert before != after


def _start(folder, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", COMPILE, str(folder), str(seconds)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _is_free(path):
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True

"""C functions: compiled once, loaded in later processes wherever their sources lie."""

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from worker.kernels import native_code
from worker.kernels.native import Native, address_of, float32s

ROOT = Path(native_code.__file__).parents[2]
USE = """
import sys
import numpy as np
from worker.kernels.code_cache import CODE_CACHE
from worker.kernels.native import Native, address_of, float32s

def make(factor):
    def scale(address, count):
        values = float32s(address, count)
        for i in range(count):
            values[i] = np.exp(values[i] * np.float32(factor))
    return Native(scale, 2)

natives = [make(factor) for factor in (1, 2, 3)]
values = np.full((3, 4), 0.5, np.float32)
print("ready", flush=True)
sys.stdin.readline()
for native, row in zip(natives, values):
    native(address_of(row), 4)
print(CODE_CACHE.compiled, *values[:, 3])
"""


def _scale(factor):
    def scale(address: int, count: int) -> None:
        values = float32s(address, count)
        for i in range(count):
            values[i] *= np.float32(factor)

    return Native(scale, 2)


def test_code_stays_when_its_native_is_gone():
    """An address may lie in another kernel's arguments: it is valid to the end of the process."""
    addresses = [_scale(factor).address for factor in (2, 3)]
    gc.collect()
    assert 2 == len(set(addresses))
    values = np.ones(3, np.float32)
    for address in addresses:
        native = _scale(2)
        native.__dict__["address"] = address
        native(address_of(values), 3)
    assert [6.0, 6.0, 6.0] == values.tolist()


def test_two_copies_of_the_sources_share_one_compilation(tmp_path):
    """Two processes at once and a third one later, from three folders: each kernel once."""
    expected = np.exp(np.array([0.5, 1.0, 1.5], np.float32))
    for source, name in ((ROOT, "a"), (tmp_path / "a", "b"), (tmp_path / "a", "c")):
        _copy_packages(source, tmp_path / name)
    processes = [_start(tmp_path, name) for name in "ab"]
    assert ["ready\n"] * 2 == [process.stdout.readline() for process in processes]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = [_finish(process, expected) for process in processes]
    assert 4 == sum(counts)  # three and what they have in common, float32s
    assert 0 == _finish(_start(tmp_path, "c"), expected)


def _copy_packages(source, copy):
    for package in ("kvpool", "worker"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / package, copy / package, ignore=ignored)
    (copy / "use.py").write_text(USE)


def _start(folder, name):
    environment = {**os.environ, "TOKENMILL_CACHE": str(folder / "cache"), "PYTHONPATH": ""}
    return subprocess.Popen(
        [sys.executable, "use.py"],
        cwd=folder / name,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _finish(process, expected):
    """Check the results; give the number of kernels that the process compiled."""
    answer = process.communicate("go\n")[0].removeprefix("ready\n").split()
    np.testing.assert_allclose(np.array(answer[1:], np.float32), expected, rtol=1e-6)
    return int(answer[0])

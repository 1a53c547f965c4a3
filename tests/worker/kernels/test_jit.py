"""The kernel decorator: one set of options, and a cache keyed by content."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from worker.kernels import jit

ROOT = Path(jit.__file__).parents[2]
PACKAGES = ("kvpool", "worker", "cluster", "jobs")
USE_A_KERNEL = """
import numpy as np
from worker.kernels import soft_cap
soft_cap.soft_cap_values(np.zeros(8, np.float32), np.float32(1.0))
stats = soft_cap.soft_cap_values.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_no_kernel_strays_from_the_common_options():
    """Only jit.py calls Numba's compilers; no file names a JIT option of its own."""
    compilers = {"njit", "jit", "vectorize", "guvectorize", "stencil", "cfunc"}
    strays = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "jit.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id in compilers)
        or (isinstance(node, ast.Attribute) and node.attr in compilers)
        or (isinstance(node, ast.ImportFrom) and {a.name for a in node.names} & compilers)
    ]
    assert [] == strays


def test_fastmath_is_off():
    """Fast math would reorder sums behind our back."""
    assert {"nogil": True, "error_model": "numpy"} == jit.JIT_OPTIONS


def test_a_kernel_is_compiled_as_by_numba():
    """Our dispatcher has the options of Numba's decorator, and leaves out what nobody calls."""

    def half(x):
        return x / 2

    theirs, ours = numba.njit(**jit.JIT_OPTIONS)(half), jit.kernel(half)
    expected = {**theirs.targetoptions, "no_cfunc_wrapper": True}
    assert expected == {"boundscheck": None, **ours.targetoptions}
    assert 1.5 == ours(3)


def test_a_kernel_closes_over_nothing():
    """Numba cannot tell such functions apart across processes."""
    factor = 2
    with pytest.raises(AssertionError, match="no module-level function"):
        jit.kernel(lambda x: x * factor)


def _copy_of_the_packages(folder, source=ROOT):
    for package in ("kvpool", "worker"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source / package, folder / package, ignore=ignored)
    return folder


def _hits_and_misses(folder, cache, check=True):
    environment = {**os.environ, "TOKENMILL_CACHE": str(cache), "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", USE_A_KERNEL],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=check,
    )
    return tuple(map(int, done.stdout.split())), done.stderr


def test_another_folder_with_the_same_content_compiles_nothing(tmp_path):
    """As Ray does it: the same files, unpacked elsewhere, edited where no kernel is."""
    first = _copy_of_the_packages(tmp_path / "a")
    second = _copy_of_the_packages(tmp_path / "b", first)
    (second / "worker" / "errors.py").write_text(
        (second / "worker" / "errors.py").read_text() + "# edited\n"
    )
    assert (0, 1) == _hits_and_misses(first, tmp_path / "cache")[0]
    assert (1, 0) == _hits_and_misses(second, tmp_path / "cache")[0]


def test_an_edited_kernel_helper_compiles_anew(tmp_path):
    """A kernel's code comes from several files: changing any of them names another folder."""
    folder = _copy_of_the_packages(tmp_path / "a")
    assert (0, 1) == _hits_and_misses(folder, tmp_path / "cache")[0]
    vector = folder / "worker" / "kernels" / "vector.py"
    vector.write_text(vector.read_text() + "# edited\n")
    assert (0, 1) == _hits_and_misses(folder, tmp_path / "cache")[0]
    assert 2 == len(list((tmp_path / "cache" / "kernels").iterdir()))


def test_an_unusable_cache_folder_costs_a_warning_only(tmp_path):
    """A cache that cannot be written: kernels work, and one warning says what to set."""
    (tmp_path / "cache").write_text("a file where the folder should be")
    counts, messages = _hits_and_misses(_copy_of_the_packages(tmp_path / "a"), tmp_path / "cache")
    assert (0, 1) == counts
    assert 1 == len(re.findall("set TOKENMILL_CACHE to a folder that can be written", messages))

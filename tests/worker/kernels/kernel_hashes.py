"""Golden hashes of kernel outputs, the same on every machine: ``tests/data/kernel-hashes.json``.

``python -m tests.worker.kernels.kernel_hashes [NAME ...]`` compares this machine's, of all cases or
those named; ``--write`` renews the file after a kernel was changed on purpose. Runs without pytest.
"""

import hashlib
import json
import platform
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from worker.kernels.feature_probe import best_instruction_set

from .kernel_outputs import CASES

HASHES = Path(__file__).parents[2] / "data" / "kernel-hashes.json"


def hash_of(name):
    """Hash of a case's arrays; NaN is NaN, whatever sign and payload the CPU gives it."""
    digest = hashlib.sha256()
    for array in CASES[name]():
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


def stored_hashes():
    """Name to hash, as the file has them."""
    return json.loads(HASHES.read_text(encoding="utf-8"))


def write():
    """Store this machine's hashes."""
    hashes = {name: hash_of(name) for name in CASES}
    HASHES.write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def compare(names):
    """Print a line a case; 1 if a hash is another one than the file's, else 0."""
    print(f"{platform.machine()}, instruction set {best_instruction_set().name}", flush=True)
    stored, wrong = stored_hashes(), 0
    for name in names:
        started, found = perf_counter(), hash_of(name)
        same = stored.get(name) == found
        wrong += not same
        verdict = "same" if same else f"DIFFERENT, the file has {stored.get(name)}"
        print(f"{name:<28} {found} {perf_counter() - started:6.1f} s  {verdict}", flush=True)
    print(f"{len(names) - wrong} of {len(names)} hashes are those of the file")
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        sys.exit(compare(sys.argv[1:] or list(CASES)))

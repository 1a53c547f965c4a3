"""Instruction sets: which one a CPU gets, and the same bits whichever it is."""

import json
import os
import platform
import subprocess
import sys

import llvmlite.binding as llvm
import pytest
from numba.core import config
from numba.core.codegen import get_host_cpu_features

from worker.kernels.feature_probe import (
    INSTRUCTION_SETS,
    available_instruction_sets,
    best_instruction_set,
    instruction_sets_of,
)

X86, APPLE, LINUX_ARM = "x86_64-unknown-linux-gnu", "arm64-apple-macosx14", "aarch64-linux-gnu"
CPUS = [
    (X86, "x86-64", "", "generic"),
    (X86, "nehalem", "", "generic"),
    (X86, "sandybridge", "", "generic"),
    (X86, "haswell", "", "avx2"),
    (X86, "haswell", "-f16c", "generic"),
    (X86, "haswell", "-fma", "generic"),
    (X86, "znver3", "", "avx2"),
    (X86, "skylake-avx512", "", "avx2"),
    (X86, "alderlake", "", "avx-vnni"),
    (X86, "alderlake", "-avxvnni", "avx2"),
    (X86, "cascadelake", "", "avx512-vnni"),
    (X86, "sapphirerapids", "", "avx512-vnni"),
    (X86, "sapphirerapids", "-avx512f", "avx-vnni"),
    (X86, "znver4", "", "avx512-vnni"),
    (X86, "znver4", "-avx512f", "avx2"),
    (APPLE, "apple-m1", "", "neon-dot"),
    (APPLE, "apple-m4", "", "neon-dot"),
    (LINUX_ARM, "generic", "", "generic"),
    (LINUX_ARM, "cortex-a72", "", "generic"),
    (LINUX_ARM, "neoverse-n1", "", "neon-dot"),
    (LINUX_ARM, "neoverse-n1", "-dotprod", "generic"),
]
# A process of its own, because Numba reads its settings once.
RUN_TILES = """
import hashlib, json
import numpy as np
from gguf import GGMLQuantizationType as QType
from worker.kernels.feature_probe import best_instruction_set
from tests.worker.kernels import naive_tiles
from tests.worker.kernels.test_tile import random_activations, random_floats, random_weights, run
isa = best_instruction_set().name
digest = hashlib.sha256()
for name in ("Q4_K", "Q8_0", "Q6_K"):
    rng = np.random.default_rng(5)
    weights = naive_tiles.packed(random_weights(name, 512, rng))
    x = naive_tiles.records(*random_activations(8, 512, rng))
    digest.update(run(name, isa, 1, weights, x, 16).tobytes())
    digest.update(run(name, isa, 8, weights, x, 16).tobytes())
rng = np.random.default_rng(6)
stored, _ = random_floats("F16", 64, rng)
digest.update(run("F16", isa, 2, stored.T, rng.random((2, 64), np.float32), 64).tobytes())
print(json.dumps([isa, digest.hexdigest()]))
"""


@pytest.fixture(scope="module", autouse=True)
def all_targets():
    """LLVM can write code for any CPU; running it is another matter."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize(("triple", "cpu", "features", "best"), CPUS)
def test_known_cpus(triple, cpu, features, best):
    """The best instruction set of a CPU, with some of its features missing."""
    assert best == instruction_sets_of(triple, cpu, features)[0].name


def test_the_last_resort_is_always_there():
    """Any CPU runs the generic set, and it comes last."""
    assert "generic" == available_instruction_sets()[-1].name
    assert "generic" == list(INSTRUCTION_SETS)[-1]


def _masked(features):
    """Best instruction set and hash of tiles in a process whose CPU lacks some features."""
    cpu = llvm.get_host_cpu_name() if config.CPU_NAME is None else config.CPU_NAME
    own = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": ",".join(filter(None, [own, features])),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN_TILES], env=environment, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stderr
    isa, digest = json.loads(done.stdout.splitlines()[-1])
    return isa, digest


def _masks():
    """Features to take away, one set after the other, and what is left."""
    names = [isa.name for isa in available_instruction_sets()]
    if platform.machine() in ("arm64", "aarch64"):
        return {"neon-dot": "", "generic": "-dotprod"}
    # Some CPUs can the 256-bit dot product by AVX-512 only, which goes together.
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    masks = {"avx512-vnni": "", "avx-vnni": "-avx512f", "avx2": "-avx512f,-avxvnni"}
    masks = {name: mask for name, mask in masks.items() if name in names}
    if "+avxvnni," not in f"{features},":
        masks.pop("avx-vnni", None)
    return {**masks, "generic": "-avx"}


def test_masked_features_choose_another_set_with_the_same_bits():
    """No intrinsic that the CPU lacks is compiled, which would end the process."""
    found = {name: _masked(features) for name, features in _masks().items()}
    assert best_instruction_set().name in found
    assert list(found) == [isa for isa, _ in found.values()]
    assert 1 == len({digest for _, digest in found.values()})

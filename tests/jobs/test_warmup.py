"""The verb warmup: what is ready afterwards, and what it refuses."""

import json
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from worker import kernels
from worker.kernels.jit import Kernel
from worker.kernels.native import Native

from .conftest import ROOT

pytestmark = pytest.mark.timeout(900)  # every kernel is compiled, on a busy machine perhaps

# Every sampling parameter by itself and with the others; prints how many kernels were compiled.
RUN = """
import sys
from dataclasses import fields
from jobs.warmup import print_warm_up
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.kernels.code_cache import CODE_CACHE

VALUES = {
    "n": 2, "temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "seed": 1, "max_tokens": 4,
    "stop": "zz", "stop_token_ids": [1], "ignore_eos": True, "logprobs": 2,
    "presence_penalty": 0.1, "frequency_penalty": 0.1, "repetition_penalty": 1.5,
}
assert [field.name for field in fields(SamplingParams)] == list(VALUES)
engine = Engine.from_gguf(sys.argv[1], EngineConfig(threads=2))
params = [SamplingParams(**{"max_tokens": 3, name: value}) for name, value in VALUES.items()]
params += [SamplingParams(**{"max_tokens": 3, "temperature": 1, name: value})
           for name, value in VALUES.items() if name != "temperature"]
for count in (1, 2, 3, len(params)):
    rows = [Request(row_id=RowId(i), prompt="is it?" * 30, sampling=s)
            for i, s in enumerate(params[:count])]
    assert not any(row.error for row in engine.generate(rows))
print(CODE_CACHE.compiled, CODE_CACHE.loaded)
"""

# Weights of every type as those of a large model are dequantised; prints the same.
STREAM = """
import numpy as np
from worker.gguf import SUPPORTED_TYPES, dequantize
from worker.gguf.quant_types import row_bytes
from worker.kernels.code_cache import CODE_CACHE

for qtype in SUPPORTED_TYPES:
    raw = np.zeros((8, row_bytes(512, qtype)), np.uint8)
    dequantize(raw, qtype, np.empty((8, 512), np.float32), stream=True)
print(CODE_CACHE.compiled, CODE_CACHE.loaded)
"""

# Kernels that only measurements call; models call the same code from tasks.
NO_MODELS = {"kv_write._kv_write"}


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """An environment with a cache folder, empty but for what a warm-up for all models left."""
    folder = tmp_path_factory.mktemp("cache")
    environment = {**os.environ, "TOKENMILL_CACHE": str(folder)}
    return environment, _warm_up(environment)


def _warm_up(environment, *arguments):
    command = [sys.executable, "-m", "jobs.cli", "warmup", *map(str, arguments), "-o", "json"]
    return json.loads(_output(command, environment))


def _output(command, environment):
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def test_every_kernel_is_compiled(warm):
    """Each kernel of the sources is there, in a form for its arguments, and nothing else is."""
    environment, done = warm
    kept = [path.name for path in Path(done["kernel_folder"]).glob("[!.]*")]
    assert _kernels() - NO_MODELS == _kernels() & {name.rpartition("-")[0] for name in kept}
    assert (None, len(kept)) == (done["model"], done["kernels_compiled"])
    assert done["cache_folder"] == environment["TOKENMILL_CACHE"]
    assert ["kernels"] == os.listdir(done["cache_folder"])  # noqa: PTH208 - names


def test_a_job_after_it_compiles_nothing(warm, chain_llama):
    """Whatever the parameters of its rows and the size of its batches."""
    compiled, found = _output([sys.executable, "-c", RUN, chain_llama], warm[0]).split()
    assert ("0", True) == (compiled, int(found) > 0)


def test_large_weights_after_it_compile_nothing(warm):
    """Those that are written past the caches, which takes kernels of their own."""
    compiled, found = _output([sys.executable, "-c", STREAM], warm[0]).split()
    assert ("0", True) == (compiled, int(found) > 0)


def test_a_model_is_made_ready(warm, chain_llama):
    """Its weights are packed; kernels that were there are not compiled again."""
    done = _warm_up(warm[0], chain_llama)
    assert (0, True) == (done["kernels_compiled"], done["kernels_found"] > 0)
    assert str(chain_llama) == done["model"]
    assert 1 == len(list(Path(done["cache_folder"]).glob("packed/*.packed")))


def _kernels():
    names = set()
    for info in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for value in vars(import_module(info.name)).values():
            if isinstance(value, Kernel | Native):
                function = value.py_func if isinstance(value, Kernel) else value.python_function
                names.add(f"{function.__module__.rpartition('.')[2]}.{function.__name__}")
    return names


def test_a_cache_that_cannot_be_written_is_a_failure(tokenmill, chain_llama, tmp_path):
    """Nothing would be ready later: exit code 2, and what to set."""
    (tmp_path / "cache").write_text("in the way")
    environment = {**os.environ, "TOKENMILL_CACHE": str(tmp_path / "cache")}
    result = tokenmill("warmup", chain_llama, env=environment)
    assert 2 == result.returncode
    assert "cannot be kept" in result.stderr
    assert "set TOKENMILL_CACHE to a folder that can be written" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["/nowhere.gguf"], 4, "there is no such file"),
        (["--sha256", "0" * 64], 2, "give MODEL"),
        (["--threads", "0"], 2, "threads"),
    ],
)
def test_refusals(invoke, arguments, code, words):
    """A model that is not there, and options that cannot be."""
    result = invoke("warmup", *arguments)
    assert code == result.exit_code
    assert words in result.stderr

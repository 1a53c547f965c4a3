"""``tokenmill warmup``: compile kernels and keep what a model needs before the first job.

Nothing lists what is to be compiled: an engine runs a few rows, so that whatever it needs is there.
What only weights of many megabytes take is run by itself.
"""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args, get_origin

import numpy as np

from cluster.errors import JobConfigError
from worker.cache_folder import CACHE_VARIABLE, cache_folder
from worker.checked_file import write_checked
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.errors import ModelError
from worker.gguf import SUPPORTED_TYPES, dequantize
from worker.gguf.quant_types import row_bytes
from worker.kernels.code_cache import CODE_CACHE, kernel_cache_folder
from worker.model_source import fetch_model

from .engine_options import engine_config
from .warmup_models import write_warmup_models

_PROMPT = "Once upon a time there was a cat that could count to a hundred, and did so every day."
# Greedy rows and rows with parameters take different kernels.
_SAMPLING: tuple[Mapping[str, Any], ...] = (
    {},
    {"temperature": 0.8},
    {"temperature": 0.8, "top_k": 5},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 0.8, "min_p": 0.1},
    {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
    {"presence_penalty": 0.5, "frequency_penalty": 0.5},
    {"repetition_penalty": 1.1},
    {"logprobs": 3},
)
_SETTINGS = {"kv_pool_tokens": 1024}
_COLUMNS = 256  # a quant block of every type


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What was done.

    Attributes:
        model: the model file; None when kernels were compiled for all models.
        kernels_compiled: kernels that were compiled now.
        kernels_found: kernels that had been compiled before.
        seconds: that it took, fetching the model included.
        cache_folder: where models, tokenizers and packed weights are kept.
        kernel_folder: where the kernels of this version are kept, for this CPU.
    """

    model: str | None
    kernels_compiled: int
    kernels_found: int
    seconds: float
    cache_folder: str
    kernel_folder: str


def print_warm_up(
    model: str | None, sha256: str | None, engine_options: Mapping[str, Any], output_format: str
) -> None:
    """Warm up for a model, or for all, and print what was done.

    Raises:
        JobConfigError: options that cannot be, or a cache folder that cannot be written.
        ModelError: the model cannot be used.
    """
    if sha256 is not None and model is None:
        raise JobConfigError("--sha256 is that of a model: give MODEL, or leave it out")
    started, before = perf_counter(), (CODE_CACHE.compiled, CODE_CACHE.loaded)
    config = engine_config({**_SETTINGS, **engine_options})
    _check_that_kernels_can_be_kept()
    if model is None:
        path = None
        _warm_up_all(config)
    else:
        path = fetch_model(model, sha256=sha256)
        _run(path, config)
    if CODE_CACHE.problem is not None:
        raise _cannot_be_kept(CODE_CACHE.problem)
    done = WarmUp(
        model=None if path is None else str(path),
        kernels_compiled=CODE_CACHE.compiled - before[0],
        kernels_found=CODE_CACHE.loaded - before[1],
        seconds=perf_counter() - started,
        cache_folder=str(cache_folder()),
        kernel_folder=str(kernel_cache_folder()),
    )
    print(json.dumps(asdict(done)) if output_format == "json" else "\n".join(_lines(done)))


def _check_that_kernels_can_be_kept() -> None:
    """Try the folder before minutes are spent for nothing.

    Raises:
        JobConfigError: nothing can be written there.
    """
    probe = kernel_cache_folder() / ".probe"
    try:
        write_checked(probe, b"")
        probe.unlink()
    except OSError as error:
        raise _cannot_be_kept(str(error)) from error


def _cannot_be_kept(reason: str) -> JobConfigError:
    return JobConfigError(
        f"kernels cannot be kept in {kernel_cache_folder()} ({reason}); set {CACHE_VARIABLE} to a "
        "folder that can be written"
    )


def _lines(done: WarmUp) -> Iterator[str]:
    whose = "all tensor types and architectures" if done.model is None else done.model
    yield f"ready for {whose}"
    yield (
        f"compiled {done.kernels_compiled} kernels, found {done.kernels_found} that had been, in "
        f"{done.kernel_folder}"
    )
    yield f"done in {done.seconds:.1f} s"


def _warm_up_all(config: EngineConfig) -> None:
    """Run every kernel on small models of zeros, in each way to compute."""
    with _other_cache_folder() as folder:
        for path in write_warmup_models(folder):
            for update in _ways_to_compute():
                _run(path, config.model_copy(update=update))
    _stream_all_types()
    _segment_a_text()


def _segment_a_text() -> None:
    """Encode as a unigram vocabulary does; no model that is made here has one."""
    from worker.tokenizer.best_segmentation import BestSegmentation

    words = {"a": 0, "ab": 1}
    BestSegmentation(words, np.zeros(len(words)), unknown=0, unknown_score=-1.0).encode("ab")


def _stream_all_types() -> None:
    """Dequantise some values of each type past the caches, as only larger models do."""
    for qtype in SUPPORTED_TYPES:
        raw = np.zeros((1, row_bytes(_COLUMNS, qtype)), np.uint8)
        dequantize(raw, qtype, np.empty((1, _COLUMNS), np.float32), stream=True)


@contextmanager
def _other_cache_folder() -> Iterator[Path]:
    """Keep what belongs to small models out of the user's cache folder; kernels go there."""
    before = os.environ.get(CACHE_VARIABLE)
    kernel_cache_folder()  # decides now where kernels lie
    with tempfile.TemporaryDirectory(prefix="tokenmill-warmup-") as folder:
        os.environ[CACHE_VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[CACHE_VARIABLE]
            else:
                os.environ[CACHE_VARIABLE] = before


def _ways_to_compute() -> Iterator[Mapping[str, str]]:
    """The engine's defaults, and each other value of each setting that is a choice."""
    yield {}
    for name, field in EngineConfig.model_fields.items():
        if get_origin(field.annotation) is Literal:
            others = set(get_args(field.annotation)) - {field.default}
            yield from ({name: value} for value in sorted(others))


def _run(path: Path, config: EngineConfig) -> None:
    """Complete a few rows, sampled in every way.

    Raises:
        ModelError: a row failed: so would those of a job.
    """
    engine = Engine.from_gguf(path, config)
    try:
        rows = [
            Request(
                row_id=RowId(index),
                prompt=_PROMPT,
                sampling=SamplingParams(max_tokens=3, ignore_eos=True, **sampling),
            )
            for index, sampling in enumerate(_SAMPLING)
        ]
        failed = [row.error for row in engine.generate(rows) if row.error is not None]
    finally:
        engine.close()
    if failed:
        raise ModelError(f"{path}: a row of the warm-up failed: {failed[0]}")

"""``tokenmill bench``: prefill and decode speed, in the columns of llama.cpp's batched bench."""

import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.peak_memory import peak_rss_bytes
from worker.available_cores import available_cores
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.errors import EngineConfigError
from worker.model_source import fetch_model

from .bench_curve import curve_lines, falls
from .bench_measure import measure, warm_up
from .bench_plan import NO_BOUND, BenchPlan, Case
from .blas_bound import BlasStep
from .text_table import aligned


def run_bench(model: str, plan: BenchPlan, output_format: str) -> None:
    """Measure every case under every bound of the dequant cache, and print a line for each.

    Raises:
        ModelError: the model cannot be used.
        EngineConfigError: a case does not fit the model's context, or a bound is too small.
        PoolSizeError: the KV pool of the largest case does not fit this machine.
    """
    path = fetch_model(model)
    results: list[dict[str, Any]] = []
    for layers in plan.cache_layers:
        numerics, lines = _under_bound(path, plan, layers)
        results += lines
    if output_format == "json":
        about = {"compute": plan.compute, "numerics": numerics}
        print(json.dumps(about | {"results": results, "falls": falls(results)}, indent=2))
    else:
        print(*_table(results), *curve_lines(results), "", sep="\n")
        print(f"compute: {plan.compute}", f"numerics: {numerics}", sep="\n")


@contextmanager
def bench_engine(path: Path, plan: BenchPlan, cache_layers: int | None) -> Iterator[Engine]:
    """An engine for all cases of the plan, warm, and gone with its memory at the end.

    Raises:
        EngineConfigError, PoolSizeError, ModelError: as ``run_bench``.
    """
    engine = Engine.from_gguf(path, engine_config(plan, cache_layers))
    try:
        check_context(engine, plan)
        warm_up(engine, plan.max_num_seqs)
        yield engine
    finally:
        engine.close()
        del engine
        gc.collect()


def engine_config(plan: BenchPlan, cache_layers: int | None) -> EngineConfig:
    """Settings under which every case of the plan fits at once and nothing is preempted."""
    block = EngineConfig().block_size
    blocks = max(case.b * -(-plan.max_len(case) // block) for case in plan.cases)
    return EngineConfig(
        compute=plan.compute,
        threads=plan.threads,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        kv_pool_tokens=blocks * block,
        dequant_cache_layers=cache_layers,
        prefix_caching=False,
        deduplicate=False,
    )


def _under_bound(
    path: Path, plan: BenchPlan, cache_layers: int | None
) -> tuple[str, list[dict[str, Any]]]:
    """The arithmetic's identity, and the result of each case, under one bound of the cache."""
    results = []
    with bench_engine(path, plan, cache_layers) as engine:
        for case in plan.cases:
            print(f"measuring {case} ...", file=sys.stderr, flush=True)
            results.append(_result(engine, case, cache_layers))
        return engine.numerics, results


def _result(engine: Engine, case: Case, cache_layers: int | None) -> dict[str, Any]:
    """One case, as the JSON object that is printed."""
    blas = _blas_step(engine, case, cache_layers)
    measured = measure(engine, case, blas)
    if blas is not None:
        blas.close()
    seconds, blas_ms = measured.t_pp + measured.t_tg, measured.blas_ms
    return {
        "pp": case.pp,
        "tg": case.tg,
        "b": case.b,
        "n_kv": case.n_kv,
        "t_pp_s": measured.t_pp,
        "s_pp": case.b * case.pp / measured.t_pp,
        "t_tg_s": measured.t_tg,
        "s_tg": case.b * case.tg / measured.t_tg,
        "t_s": seconds,
        "s": case.n_kv / seconds,
        "ttft_s": measured.ttft,
        "decode_ms": measured.decode_ms,
        "blas_ms": blas_ms,
        "of_blas": None if blas_ms is None else blas_ms / measured.decode_ms,
        "dequant_cache_layers": cache_layers,
        "dequant_hit_rate": measured.hit_rate,
        "peak_rss_bytes": peak_rss_bytes(),
        "checksum": measured.checksum,
    }


def check_context(engine: Engine, plan: BenchPlan) -> None:
    """Refuse cases that are longer than the model's context.

    Raises:
        EngineConfigError: naming the case and the context.
    """
    for case in plan.cases:
        needed = plan.max_len(case)
        if needed > engine.max_model_len:
            raise EngineConfigError(
                f"{case} needs {needed} tokens a sequence, those decoded while the last prompt is "
                f"computed included; the model's context is {engine.max_model_len}: lower --npp "
                "or --ntg, or raise --max-num-batched-tokens"
            )


def _blas_step(engine: Engine, case: Case, cache_layers: int | None) -> BlasStep | None:
    """What to measure beside each decode step; None where the question is moot.

    That is with integer kernels, with a bounded dequant cache, whose misses are no matrix products,
    and where BLAS failed its proof.
    """
    if engine.config.compute == "int8" or cache_layers is not None:
        return None
    threads = engine.config.threads or available_cores()
    return BlasStep.for_model(engine.model.dequant_cache, case.b, threads)


_COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("PP", lambda r: str(r["pp"])),
    ("TG", lambda r: str(r["tg"])),
    ("B", lambda r: str(r["b"])),
    ("N_KV", lambda r: str(r["n_kv"])),
    ("T_PP s", lambda r: f"{r['t_pp_s']:.3f}"),
    ("S_PP t/s", lambda r: f"{r['s_pp']:.2f}"),
    ("T_TG s", lambda r: f"{r['t_tg_s']:.3f}"),
    ("S_TG t/s", lambda r: f"{r['s_tg']:.2f}"),
    ("T s", lambda r: f"{r['t_s']:.3f}"),
    ("S t/s", lambda r: f"{r['s']:.2f}"),
    ("TTFT s", lambda r: f"{r['ttft_s']:.3f}"),
    ("ms/step", lambda r: f"{r['decode_ms']:.2f}"),
    ("BLAS ms", lambda r: "-" if r["blas_ms"] is None else f"{r['blas_ms']:.2f}"),
    ("of BLAS", lambda r: "-" if r["of_blas"] is None else f"{r['of_blas']:.0%}"),
    ("cached layers", lambda r: _of_cache(r, str(r["dequant_cache_layers"] or NO_BOUND))),
    ("hits", lambda r: _of_cache(r, f"{r['dequant_hit_rate'] or 0:.0%}")),
    ("peak MiB", lambda r: f"{r['peak_rss_bytes'] / 2**20:.0f}"),
    ("checksum", lambda r: r["checksum"]),
)


def _of_cache(result: dict[str, Any], text: str) -> str:
    """What is to be said of the dequant cache; nothing where no weight went through it."""
    return "-" if result["dequant_hit_rate"] is None else text


def _table(results: Sequence[dict[str, Any]]) -> list[str]:
    """A line a result, without the columns that have nothing to say of any of them."""
    cells = [[name, *map(cell, results)] for name, cell in _COLUMNS]
    return aligned(list(zip(*(c for c in cells if set(c[1:]) != {"-"}), strict=True)))

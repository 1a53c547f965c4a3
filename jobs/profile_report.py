"""``tokenmill bench --profile``: the share of each stage of a step, and what it allocates.

Times and allocations are taken in two passes, since tracing allocations slows Python down.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from worker.engine.engine import Engine
from worker.engine.request import RowId
from worker.model_source import fetch_model
from worker.stages import StageRecord

from .bench import bench_engine
from .bench_measure import decode_step, prefill_requests, start_decode
from .bench_plan import BenchPlan, Case
from .text_table import aligned

REST = "python and rest"
"""What a step spends outside all stages: the scheduler, batches, stop strings, Python itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProfile:
    """Where the time of one phase of a case went.

    Attributes:
        phase: prefill or decode.
        case: what ran.
        steps: steps of the engine.
        seconds: spent in them.
        stages: each stage's time, from a pass without tracing.
        allocations: most bytes a call of the stage took beyond what was held, by stage; None for
            compiled operations, which take no memory and give out no array.
    """

    phase: str
    case: Case
    steps: int
    seconds: float
    stages: tuple[StageRecord, ...]
    allocations: dict[str, int | None]

    @property
    def rest_seconds(self) -> float:
        """Seconds outside all stages."""
        return self.seconds - sum(stage.seconds for stage in self.stages)


def run_profile(model: str, plan: BenchPlan, output_format: str) -> None:
    """Profile prefill and decode of every case, and print a table or JSON.

    Raises:
        ModelError: the model cannot be used.
        EngineConfigError: a case does not fit the model's context, or a bound is too small.
        PoolSizeError: the KV pool of the largest case does not fit this machine.
    """
    path = fetch_model(model)
    profiles: list[dict[str, Any]] = []
    for layers in plan.cache_layers:
        with bench_engine(path, plan, layers) as engine:
            for case in plan.cases:
                print(f"profiling {case} ...", file=sys.stderr, flush=True)
                for profile in (profile_prefill(engine, case), profile_decode(engine, case)):
                    if output_format == "table":
                        print("\n".join(profile_lines(profile)), flush=True)
                    profiles.append({"dequant_cache_layers": layers} | as_json(profile))
    if output_format == "json":
        print(json.dumps(profiles, indent=2))


def profile_prefill(engine: Engine, case: Case) -> PhaseProfile:
    """Where the time of computing the case's prompts goes."""
    requests = prefill_requests(engine, case)
    return _profile("prefill", engine, case, lambda: engine.generate(requests))


def profile_decode(engine: Engine, case: Case) -> PhaseProfile:
    """Where the time of the case's decode steps goes."""

    def one_pass() -> None:
        try:
            for _ in range(case.tg):
                decode_step(engine, case)
        finally:
            for row in range(case.b):
                engine.abort(RowId(row))

    return _profile("decode", engine, case, one_pass, prepare=lambda: start_decode(engine, case))


def profile_lines(profile: PhaseProfile) -> list[str]:
    """The profile as a table: one line a stage, in the order of a step.

    What is known of no stage has no column.
    """
    header = ("stage", "share", "ms/step", "calls/step", "peak allocated", "dtype", "contiguous")
    rows = [_stage_row(profile, stage) for stage in profile.stages]
    rest = profile.rest_seconds
    rows.append((REST, f"{rest / profile.seconds:.1%}", _ms(profile, rest), "", "", "", ""))
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    title = f"{profile.phase} of {profile.case}: {profile.steps} steps, "
    return [
        f"{title}{_ms(profile, profile.seconds)} ms each",
        *aligned(list(zip(*columns, strict=True))),
        "",
    ]


def as_json(profile: PhaseProfile) -> dict[str, Any]:
    """The profile as the JSON object that is printed."""
    stages = [
        {
            "stage": stage.name,
            "seconds": stage.seconds,
            "share": stage.seconds / profile.seconds,
            "calls": stage.calls,
            "peak_allocated_bytes": profile.allocations.get(stage.name),
            "dtypes": sorted(stage.dtypes),
            "contiguous": stage.contiguous if stage.dtypes else None,  # no array came out
        }
        for stage in profile.stages
    ]
    rest = profile.rest_seconds
    stages.append({"stage": REST, "seconds": rest, "share": rest / profile.seconds})
    case = {"pp": profile.case.pp, "tg": profile.case.tg, "b": profile.case.b}
    sums = {"phase": profile.phase, "steps": profile.steps, "seconds": profile.seconds}
    return case | sums | {"stages": stages}


def _profile(
    phase: str,
    engine: Engine,
    case: Case,
    one_pass: Callable[[], object],
    prepare: Callable[[], None] = lambda: None,
) -> PhaseProfile:
    """Run the pass twice: for times, for allocations."""
    prepare()
    before = engine.stats.snapshot()
    timed = _recorded(engine, one_pass)
    after = engine.stats.snapshot()
    prepare()
    tracemalloc.start()
    try:
        traced = _recorded(engine, one_pass)
    finally:
        tracemalloc.stop()
    return PhaseProfile(
        phase=phase,
        case=case,
        steps=after.steps - before.steps,
        seconds=after.step_s - before.step_s,
        stages=tuple(timed),
        allocations={stage.name: stage.allocated_bytes for stage in traced},
    )


def _recorded(engine: Engine, one_pass: Callable[[], object]) -> list[StageRecord]:
    engine.stages.start()
    try:
        one_pass()
    finally:
        records = engine.stages.stop()
    return records


def _stage_row(profile: PhaseProfile, stage: StageRecord) -> tuple[str, ...]:
    allocated = profile.allocations.get(stage.name)
    return (
        stage.name,
        f"{stage.seconds / profile.seconds:.1%}",
        _ms(profile, stage.seconds),
        f"{stage.calls / profile.steps:.1f}",
        "" if allocated is None else f"{allocated:,}",
        ", ".join(sorted(stage.dtypes)),
        _contiguity(stage),
    )


def _contiguity(stage: StageRecord) -> str:
    """Whether the arrays that a stage gave out were contiguous; blank when there were none."""
    if not stage.dtypes:
        return ""
    return "yes" if stage.contiguous else "no"


def _ms(profile: PhaseProfile, seconds: float) -> str:
    return f"{1000 * seconds / profile.steps:.3f}"

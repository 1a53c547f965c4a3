"""``tokenmill bench --peer``: this engine and llama.cpp in turn, and the ratios of their speeds.

Both run on the same machine, file, threads and sizes, one right after the other, so a ratio is
touched by other work on the machine only where that comes and goes within a pair.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cluster.errors import JobConfigError
from worker.available_cores import available_cores
from worker.engine.engine import Engine
from worker.model_source import fetch_model

from .bench import bench_engine
from .bench_measure import measure
from .bench_peer import Peer, PeerSettings, Speeds
from .bench_plan import BenchPlan, Case
from .text_table import aligned

PEER_PAIRS = 5
_SMALL_UBATCH, _LARGE_UBATCH = 512, 2048
_TRIAL_STEPS = 16  # decode steps that tell the peer's settings apart
_TRIAL_ROUNDS = 2  # a moment of noise must not decide

Figure = Callable[[Speeds], float]
FIGURES: dict[str, Figure] = {
    "prefill": lambda speeds: speeds.prefill,
    "decode": lambda speeds: speeds.decode,
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A short run of the peer that helps to choose its settings."""

    settings: PeerSettings
    speeds: Speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure of one case, measured in pairs.

    Attributes:
        figure: prefill or decode.
        case: what ran.
        settings: the peer's fastest for this figure.
        ours: tokens a second of each pair.
        peers: the peer's, in the same order.
    """

    figure: str
    case: Case
    settings: PeerSettings
    ours: tuple[float, ...]
    peers: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours over the peer's, pair by pair."""
        return tuple(ours / peer for ours, peer in zip(self.ours, self.peers, strict=True))


def run_against_peer(
    model: str, plan: BenchPlan, program: Path, pairs: int, output_format: str
) -> None:
    """Measure every case in alternating pairs and print the ratios.

    Raises:
        JobConfigError: the peer cannot be run, failed, or printed what cannot be read; no ratio
            is printed then.
        ModelError, EngineConfigError, PoolSizeError: as ``run_bench``.
    """
    threads = plan.threads or available_cores()
    peer = Peer(program=program, model=fetch_model(model), threads=threads)
    peer.check()
    trials: dict[Case, list[Trial]] = {}
    comparisons: list[Comparison] = []
    with bench_engine(peer.model, plan, None) as engine:
        for case in plan.cases:
            trials[case] = list(_trials(peer, case))
            comparisons += compare(engine, peer, case, trials[case], pairs)
        about: dict[str, Any] = {"compute": plan.compute, "numerics": engine.numerics}
    if output_format == "json":
        results = [_as_json(comparison, trials[comparison.case]) for comparison in comparisons]
        about |= {"peer": str(program), "threads": threads, "pairs": pairs, "results": results}
        print(json.dumps(about, indent=2))
    else:
        lines = [f"{name}: {text}" for name, text in about.items()]
        print(*table(comparisons), "", f"{threads} threads, {pairs} pairs", *lines, sep="\n")


def check_peer_options(
    plan: BenchPlan, program: Path | None, pairs: int | None, *, profile: bool
) -> None:
    """Refuse options that would be ignored.

    Raises:
        JobConfigError: naming the two that do not go together.
    """
    if program is None and pairs is not None:
        raise JobConfigError(f"--pairs {pairs} needs --peer, the program to compare with")
    if program is not None and profile:
        raise JobConfigError("--peer and --profile are two measurements: give one of them")
    if program is not None and plan.cache_layers != (None,):
        raise JobConfigError(
            "--peer compares without a bound of the dequant cache: leave out --dequant-cache-layers"
        )


def compare(
    engine: Engine, peer: Peer, case: Case, trials: list[Trial], pairs: int
) -> list[Comparison]:
    """Run the pairs of a case; the engine goes first in every other one."""
    best = {name: fastest(trials, figure) for name, figure in FIGURES.items()}
    chosen = dict.fromkeys(best.values())  # one run gives both figures where they agree
    ours: list[Speeds] = []
    peers: list[dict[PeerSettings, Speeds]] = []
    for pair in range(pairs):
        _say(f"{case}, pair {pair + 1} of {pairs} ...")
        if pair % 2 == 0:
            ours.append(_our_speeds(engine, case))
        peers.append({settings: peer.measure(case, settings) for settings in chosen})
        if pair % 2 == 1:
            ours.append(_our_speeds(engine, case))
    return [
        Comparison(
            figure=name,
            case=case,
            settings=best[name],
            ours=tuple(figure(speeds) for speeds in ours),
            peers=tuple(figure(speeds[best[name]]) for speeds in peers),
        )
        for name, figure in FIGURES.items()
    ]


def fastest(trials: list[Trial], figure: Figure) -> PeerSettings:
    """The settings of the trial in which the peer was fastest at a figure."""
    return max(trials, key=lambda trial: figure(trial.speeds)).settings


def table(comparisons: list[Comparison]) -> list[str]:
    """A line for each figure of each case: medians, and the range of the ratio."""
    header = ("figure", "PP", "TG", "B", "ours t/s", "peer t/s", "ratio", "range", "peer's flags")
    return aligned([header, *map(_row, comparisons)])


def _row(comparison: Comparison) -> tuple[str, ...]:
    case, ratios = comparison.case, comparison.ratios
    return (
        comparison.figure,
        *(str(case.pp), str(case.tg), str(case.b)),
        f"{median(comparison.ours):.2f}",
        f"{median(comparison.peers):.2f}",
        f"{median(ratios):.2f}x",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
        str(comparison.settings),
    )


def _as_json(comparison: Comparison, trials: list[Trial]) -> dict[str, Any]:
    case, ratios = comparison.case, comparison.ratios
    pairs = zip(comparison.ours, comparison.peers, ratios, strict=True)
    return {
        "figure": comparison.figure,
        "pp": case.pp,
        "tg": case.tg,
        "b": case.b,
        "ours": median(comparison.ours),
        "peer": median(comparison.peers),
        "ratio": median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "peer_flags": str(comparison.settings),
        "pairs": [{"ours": ours, "peer": peer, "ratio": ratio} for ours, peer, ratio in pairs],
        "peer_trials": [
            {"flags": str(trial.settings), "speed": FIGURES[comparison.figure](trial.speeds)}
            for trial in trials
        ],
    }


def _trials(peer: Peer, case: Case) -> Iterator[Trial]:
    """Short runs of the peer under each setting that can make a difference."""
    short = Case(case.pp, min(case.tg, _TRIAL_STEPS), case.b)
    for _ in range(_TRIAL_ROUNDS):
        for settings in peer_settings(case):
            _say(f"{short}, trying the peer with {settings} ...")
            yield Trial(settings, peer.measure(short, settings))


def peer_settings(case: Case) -> list[PeerSettings]:
    """The settings to choose from; where all prompts fit the small batch, the large is no other."""
    large = [_LARGE_UBATCH] if case.b * case.pp > _SMALL_UBATCH else []
    return [PeerSettings(fa, ub) for fa in ("on", "off") for ub in (_SMALL_UBATCH, *large)]


def _our_speeds(engine: Engine, case: Case) -> Speeds:
    measured = measure(engine, case, None)
    return Speeds(case.b * case.pp / measured.t_pp, case.b * case.tg / measured.t_tg)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

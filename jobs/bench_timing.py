"""Timing of kernels that take microseconds, on a machine that may do other things as well."""

from collections.abc import Callable
from time import perf_counter

_SLICE = 2e-3  # seconds: longer than a call from Python costs, shorter than a turn of the scheduler
_ROUNDS = 12


def best_seconds(*runs: Callable[[int], object]) -> list[float]:
    """Seconds of one repetition of each run, the best that was seen.

    Other work only ever adds time, so the best of many short looks is nearest to the truth; the
    runs take turns, so that all of them see the same machine.

    Args:
        runs: each does its work as often as it is told.
    """
    counts = [_repetitions(run) for run in runs]
    best = [float("inf")] * len(runs)
    for _ in range(_ROUNDS):
        for i, (run, count) in enumerate(zip(runs, counts, strict=True)):
            best[i] = min(best[i], _seconds(run, count) / count)
    return best


def _repetitions(run: Callable[[int], object]) -> int:
    """How often to do it for a slice of time; at least once."""
    count = 1
    while (seconds := _seconds(run, count)) < _SLICE / 2:
        count = max(2 * count, int(count * _SLICE / max(seconds, 1e-9) / 2))
    return count


def _seconds(run: Callable[[int], object], count: int) -> float:
    started = perf_counter()
    run(count)
    return perf_counter() - started

"""Decode speed against the number of sequences: does it rise, and where does it fall?"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from .text_table import aligned

NOISE = 0.03
"""A fall of at most this share of the best speed before is none."""

Result = dict[str, Any]


def falls(results: Sequence[Result]) -> list[Result]:
    """Where more sequences decode slower than fewer did, beyond noise.

    Args:
        results: of the bench, as printed in JSON; any order of sizes.
    """
    return [
        {
            "pp": point["pp"],
            "tg": point["tg"],
            "b": point["b"],
            "best_b": best["b"],
            "change": point["s_tg"] / best["s_tg"] - 1,
        }
        for curve in _curves(results)
        for best, point in _steps(curve)
        if point["s_tg"] < (1 - NOISE) * best["s_tg"]
    ]


def curve_lines(results: Sequence[Result]) -> list[str]:
    """Each curve of more than one point as a table; a fall is marked in its line."""
    return [
        line for curve in _curves(results) if len(curve) > 1 for line in ("", *_curve_table(curve))
    ]


def _curve_table(curve: list[Result]) -> list[str]:
    first = curve[0]
    rows = [("B", "S_TG t/s", "to best before"), (str(first["b"]), f"{first['s_tg']:.2f}", "")]
    marks = ["", ""]
    for best, point in _steps(curve):
        change = point["s_tg"] / best["s_tg"] - 1
        rows.append((str(point["b"]), f"{point['s_tg']:.2f}", f"{change:+.0%}"))
        marks.append(f"  <-- FALLS below B = {best['b']}" if change < -NOISE else "")
    lines = [line + mark for line, mark in zip(aligned(rows), marks, strict=True)]
    return [f"decode against B, PP {first['pp']}, TG {first['tg']}", *lines]


def _curves(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Results that differ in B alone, B rising."""

    def sizes(result: Result) -> tuple[int, int, int]:
        return result["dequant_cache_layers"] or 0, result["pp"], result["tg"]

    for _, curve in groupby(sorted(results, key=sizes), key=sizes):
        yield sorted(curve, key=lambda result: int(result["b"]))


def _steps(curve: list[Result]) -> Iterator[tuple[Result, Result]]:
    """Each point but the first, after the fastest of the points before it."""
    best = curve[0]
    for point in curve[1:]:
        yield best, point
        best = max(best, point, key=lambda result: float(result["s_tg"]))

"""``tokenmill bench-kernels``: how near the kernels come to what the CPU can do."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from gguf.constants import GGMLQuantizationType

from cluster.errors import JobConfigError
from worker.gguf.quant_types import SUPPORTED_TYPES, quant_block
from worker.kernels.layouts import layout_of
from worker.kernels.peak import PEAKS, available_peaks

from .bench_dequantize import Dequantisation, measure_dequantisation
from .bench_plan import counts
from .bench_products import Product, measure_products
from .text_table import aligned

SHAPES = ((1536, 576), (4096, 4096))
"""Rows and columns: of a matrix that stays in a core's cache, and of one that does not."""

TOKENS = (1, 4, 16, 64)


def run_kernel_bench(types: str | None, threads: str, output_format: str) -> None:
    """Measure products and dequantisation of tensor types and print both tables.

    Args:
        types: names separated by commas; None for all.
        threads: numbers separated by commas.
        output_format: table or json.

    Raises:
        JobConfigError: a type that tokenmill does not have, or a number that is none.
    """
    chosen = chosen_types(types)
    teams = counts("--threads", threads)
    products = [each for team in teams for qtype in chosen for each in _products(qtype, team)]
    dequantisations = [
        each for team in teams for qtype in chosen for each in _dequantisations(qtype, team)
    ]
    if output_format == "json":
        print(json.dumps(as_json(products, dequantisations), indent=2))
    else:
        lines = [*product_table(products), "", *peak_table(products), ""]
        print(*lines, *dequantisation_table(dequantisations), sep="\n")


def chosen_types(names: str | None) -> list[GGMLQuantizationType]:
    """Tensor types by name, in the order of their numbers.

    Raises:
        JobConfigError: naming the one that is unknown, and those there are.
    """
    by_name = {qtype.name: qtype for qtype in sorted(SUPPORTED_TYPES)}
    if names is None:
        return list(by_name.values())
    wanted = [name.strip().upper() for name in names.split(",")]
    for name in wanted:
        if name not in by_name:
            raise JobConfigError(
                f"--types {names}: found {name!r}, expected names of {', '.join(by_name)}"
            )
    return [qtype for name, qtype in by_name.items() if name in wanted]


def product_table(products: Sequence[Product]) -> list[str]:
    """GOPS by number of tokens, and what share of each peak the last of them is."""
    peaks = list(products[0].peaks) if products else []
    counted = [f"N={tokens}" for tokens in TOKENS]
    shares = [f"of {_short(isa)}" for isa in peaks]
    rows = [("GOPS", "weight", "threads", *counted, *shares)]
    for (qtype, *shape, threads), line in groupby(products, _place):
        found = list(line)
        largest = found[-1]
        of_peaks = (f"{largest.gops / peak:.0%}" for peak in largest.peaks.values())
        gops = (f"{product.gops:.1f}" for product in found)
        rows.append((qtype.name, "x".join(map(str, shape)), str(threads), *gops, *of_peaks))
    return aligned(rows)


def peak_table(products: Sequence[Product]) -> list[str]:
    """The best that was seen of each of the CPU's instructions."""
    rows = [("peak GOPS", "threads", "")]
    for threads, measured in groupby(products, lambda product: product.threads):
        best: dict[str, float] = {}
        for product in measured:
            for isa, gops in product.peaks.items():
                best[isa] = max(gops, best.get(isa, 0.0))
        rows += [(PEAKS[isa].name, str(threads), f"{gops:.1f}") for isa, gops in best.items()]
    return aligned(rows) if len(rows) > 1 else ["no peak is known for this CPU"]


def dequantisation_table(measured: Sequence[Dequantisation]) -> list[str]:
    """Values a second of each type, ratios to the gguf package, and the share of memset's speed."""
    head = ("dequantise", "weight", "threads", "Mvalues/s", "gguf Mvalues/s")
    rows = [(*head, "ratio", "both in a new array", "of memset")]
    for each in measured:
        place = (each.qtype.name, f"{each.rows}x{each.columns}", str(each.threads))
        theirs = "none" if each.gguf_rate is None else f"{each.gguf_rate / 1e6:.1f}"
        ratios = (_times(each.ratio), _times(each.fresh_ratio), f"{each.of_fill:.0%}")
        rows.append((*place, f"{each.rate / 1e6:.1f}", theirs, *ratios))
    return aligned(rows)


def as_json(
    products: Sequence[Product], dequantisations: Sequence[Dequantisation]
) -> dict[str, Any]:
    """Everything measured as the JSON object that is printed."""
    return {
        "products": [
            {
                "type": product.qtype.name,
                "rows": product.rows,
                "columns": product.columns,
                "tokens": product.tokens,
                "threads": product.threads,
                "gops": product.gops,
                "peaks": {PEAKS[isa].name: gops for isa, gops in product.peaks.items()},
            }
            for product in products
        ],
        "dequantisation": [
            {
                "type": each.qtype.name,
                "rows": each.rows,
                "columns": each.columns,
                "threads": each.threads,
                "values_per_s": each.rate,
                "fresh_values_per_s": each.fresh_rate,
                "gguf_values_per_s": each.gguf_rate,
                "memset_values_per_s": each.fill_rate,
                "ratio": each.ratio,
                "fresh_ratio": each.fresh_ratio,
                "of_memset": each.of_fill,
            }
            for each in dequantisations
        ],
    }


def _products(qtype: GGMLQuantizationType, threads: int) -> Iterator[Product]:
    """Products of a type; none for one that has no packed form."""
    if layout_of(qtype) is not None:
        _say(f"products of {qtype.name}", threads)
        yield from measure_products(qtype, _shapes(qtype), TOKENS, threads, list(available_peaks()))


def _dequantisations(qtype: GGMLQuantizationType, threads: int) -> Iterator[Dequantisation]:
    """Dequantisation of a type; none for F32, which the gguf package hands out as it is."""
    if qtype != GGMLQuantizationType.F32:
        _say(f"dequantisation of {qtype.name}", threads)
        yield from measure_dequantisation(qtype, _shapes(qtype), threads)


def _shapes(qtype: GGMLQuantizationType) -> list[tuple[int, int]]:
    """The shapes, cut to whole quant blocks."""
    block, _ = quant_block(qtype)
    return [(rows, columns - columns % block) for rows, columns in SHAPES]


def _say(what: str, threads: int) -> None:
    print(f"measuring {what} on {threads} threads ...", file=sys.stderr, flush=True)


def _place(product: Product) -> tuple[GGMLQuantizationType, int, int, int]:
    return product.qtype, product.rows, product.columns, product.threads


def _times(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.1f}x"


def _short(isa: str) -> str:
    return PEAKS[isa].name.replace(" bit", "")

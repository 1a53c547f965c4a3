"""The bench of the kernels: what it runs is right, and what it prints adds up."""

import json

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType as QType
from gguf.quants import dequantize

from jobs import bench_kernels, bench_timing
from jobs.bench_products import PeakWork, Product, ProductWork, packed_weight
from jobs.bench_weights import random_rows
from worker.gguf import dequantize as our_dequantize
from worker.gguf.quant_types import SUPPORTED_TYPES
from worker.kernels.layouts import layout_of
from worker.kernels.peak import available_peaks
from worker.kernels.quantize import quantized
from worker.thread_team import ThreadTeam

PACKED = sorted(qtype for qtype in SUPPORTED_TYPES if layout_of(qtype) is not None)


@pytest.fixture
def quick(monkeypatch):
    """Look once at each kernel, on small weights: figures mean nothing, all else is as ever."""
    monkeypatch.setattr(bench_timing, "_SLICE", 0.0)
    monkeypatch.setattr(bench_timing, "_ROUNDS", 1)
    monkeypatch.setattr(bench_kernels, "SHAPES", ((40, 512),))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("qtype", PACKED, ids=lambda qtype: qtype.name)
def test_what_is_timed_is_the_product(qtype, threads):
    """The weight times all tokens comes out, up to the rounding of the activations."""
    rows, columns, tokens = 40, 512, 3
    with ThreadTeam(threads) as team:
        work = ProductWork(packed_weight(qtype, rows, columns), tokens, team)
        work.out[:] = np.nan
        work.run(1)
    values = np.random.default_rng(tokens).standard_normal((tokens, columns), np.float32)
    if layout_of(qtype).planes:
        records = quantized(values).reshape(tokens, -1, 48)
        scales = records[..., :4].copy().view(np.float32)
        values = (records[..., 16:].view(np.int8) * scales).reshape(tokens, columns)
    dense = dequantize(random_rows(qtype, rows, columns), qtype).astype(np.float64)
    assert np.allclose(values @ dense.T, work.out, rtol=1e-4, atol=1e-4 * abs(work.out).max())


def test_operations_of_a_run_count_every_repetition():
    """A run is long enough to be timed, and a multiple of the product."""
    with ThreadTeam(1) as team:
        work = ProductWork(packed_weight(QType.Q4_0, 40, 512), 3, team)
    assert work.operations >= 10**8
    assert 0 == work.operations % (2 * 40 * 512 * 3)


def test_peaks_count_all_threads():
    """Twice the threads do twice the work of a run."""
    for isa in available_peaks():
        with ThreadTeam(1) as one, ThreadTeam(2) as two:
            assert 2 * PeakWork(isa, one).operations == PeakWork(isa, two).operations


@pytest.mark.parametrize("qtype", sorted(SUPPORTED_TYPES), ids=lambda qtype: qtype.name)
def test_random_rows_are_finite(qtype):
    """A NaN or a denormal among the values would make the figures of its type another thing."""
    values = np.empty((4, 512), np.float32)
    our_dequantize(random_rows(qtype, 4, 512), qtype, values)
    assert np.isfinite(values).all()
    assert len(np.unique(values)) > 10


def test_every_type_is_benched_by_default(quick, invoke):
    """Products of each packed type, and dequantisation of each type that needs it, as JSON."""
    result = invoke("bench-kernels", "--threads", "1", "-o", "json")
    assert 0 == result.exit_code, result.stderr
    found = json.loads(result.stdout)
    quantised = [qtype.name for qtype in sorted(SUPPORTED_TYPES - {QType.F32})]
    assert quantised == [each["type"] for each in found["dequantisation"]]
    places = [(product["type"], product["tokens"]) for product in found["products"]]
    assert [(qtype.name, n) for qtype in PACKED for n in (1, 4, 16, 64)] == places
    by_gguf = [each for each in found["dequantisation"] if each["gguf_values_per_s"] is not None]
    assert {"Q1_0"} == {*quantised} - {each["type"] for each in by_gguf}
    for each in by_gguf:
        theirs = each["gguf_values_per_s"]
        assert each["ratio"] == pytest.approx(each["values_per_s"] / theirs)
        assert each["fresh_ratio"] == pytest.approx(each["fresh_values_per_s"] / theirs)
    for each in found["dequantisation"]:
        memset = each["memset_values_per_s"]
        assert each["of_memset"] == pytest.approx(each["values_per_s"] / memset)
    assert all(product["gops"] > 0 for product in found["products"])


def test_tables_show_types_and_threads(quick, invoke):
    """The same for people, with a team of each size."""
    result = invoke("bench-kernels", "--types", "q4_k, F16", "--threads", "1,2")
    assert 0 == result.exit_code, result.stderr
    cells = [line.split() for line in result.stdout.splitlines()]
    lines = [row[:3] for row in cells if row[:1] in (["F16"], ["Q4_K"])]
    expected = [[name, "40x512", threads] for threads in "12" for name in ("F16", "Q4_K")]
    assert [*expected, *expected] == lines  # products, then dequantisation


def test_share_of_peak_is_that_of_the_most_tokens():
    """50 of 200 GOPS are 25 per cent, and the best of the peaks seen is printed."""
    speeds = ((1, 10.0, 100.0), (4, 20.0, 300.0), (16, 30.0, 200.0), (64, 50.0, 200.0))
    products = [
        Product(QType.Q4_0, 8, 32, tokens, 2, gops, {"avx2": peak}) for tokens, gops, peak in speeds
    ]
    expected = ["Q4_0", "8x32", "2", "10.0", "20.0", "30.0", "50.0", "25%"]
    assert expected == bench_kernels.product_table(products)[1].split()
    assert bench_kernels.peak_table(products)[1].split()[-2:] == ["2", "300.0"]


def test_a_cpu_without_known_peak_says_so():
    """No share is invented."""
    products = [Product(QType.Q4_0, 8, 32, 1, 1, 1.0, {})]
    assert ["no peak is known for this CPU"] == bench_kernels.peak_table(products)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--types", "Q4_0,Q9_Z"), "found 'Q9_Z', expected names of F32"),
        (("--types", ""), "found ''"),
        (("--threads", "0"), "--threads 0: found '0'"),
        (("--threads", "two"), "--threads two"),
    ],
)
def test_unknown_types_and_numbers_are_refused(invoke, options, message):
    """In one line, before anything is measured."""
    result = invoke("bench-kernels", *options)
    assert 2 == result.exit_code
    assert message in result.stderr


def test_the_best_of_all_rounds_counts(monkeypatch):
    """Noise only adds time: of slow and quick rounds the quickest is taken, for each run alone."""
    durations = {"a": iter([5.0, 9.0, 4.0, 7.0]), "b": iter([50.0, 30.0, 90.0, 60.0])}
    monkeypatch.setattr(bench_timing, "_ROUNDS", 3)
    monkeypatch.setattr(bench_timing, "_seconds", lambda run, count: next(durations[run(count)]))
    assert [4.0, 30.0] == bench_timing.best_seconds(lambda _: "a", lambda _: "b")

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster import statistics
from cluster.manifest import Manifest
from cluster.output_columns import ROW_STATS_SCHEMA
from cluster.plan import CuttingRule
from cluster.run_directory import RunDirectory
from cluster.statistics import SAMPLES_SCHEMA, WORKERS_SCHEMA, SampleSpool, write_row_stats
from cluster.worker_record import WorkerRecord
from tests.cluster.fake_engine import FakeSnapshot


@pytest.fixture
def run(tmp_path):
    """A run that has begun."""
    manifest = Manifest(fingerprint={}, inputs=[], cutting=CuttingRule(1, 1, 1), template_date="")
    with RunDirectory.claim(str(tmp_path)) as run:
        run.begin(manifest)
        yield run


def sample(worker_id, elapsed_s):
    """A sample with the columns that tell it apart."""
    return {"worker_id": worker_id, "elapsed_s": elapsed_s, "decode_tokens": 1}


def test_samples_are_all_written_in_the_order_they_came(run, monkeypatch):
    """Whatever fits into memory at a time, the file has every sample once."""
    monkeypatch.setattr(statistics, "_SAMPLES_A_FILE", 3)
    spool = SampleSpool(run)
    for second in range(10):
        spool.add([sample("a", second), sample("b", second)])
    spool.write()
    table = pq.read_table(run.stats / "samples.parquet")
    assert SAMPLES_SCHEMA == table.schema
    expected = [(worker, second) for second in range(10) for worker in "ab"]
    found = zip(table["worker_id"].to_pylist(), table["elapsed_s"].to_pylist(), strict=True)
    assert expected == list(found)


def test_row_statistics_of_all_parts_become_one_file(run):
    """Parts leave theirs behind; the file has them in row order."""
    for part in (1, 0):
        rows = [{"row_id": part * 2 + i} for i in range(2)]
        table = pa.Table.from_pylist(rows, ROW_STATS_SCHEMA)
        run.commit_arrow(run.shards / f"stats-{part:05d}.arrow", table)
    write_row_stats(run)
    assert [0, 1, 2, 3] == pq.read_table(run.stats / "rows.parquet")["row_id"].to_pylist()


def test_a_worker_that_never_reported_has_a_row_without_counters(run):
    """A worker lost before its first report is in the table, its counters null."""
    record = WorkerRecord("worker-0", 2, loss_reason="killed")
    statistics.write_worker_totals(run, [record.as_row()])
    (row,) = pq.read_table(run.stats / "workers.parquet").to_pylist()
    assert ("worker-0", True, "killed", None) == (
        row["worker_id"],
        row["lost"],
        row["loss_reason"],
        row["decode_tokens"],
    )
    assert 0.0 == record.summary().generated_tokens_per_s


def test_the_summary_has_what_a_worker_did_not_compute():
    """Preemptions, the prefix cache and equal rows, as the worker counted them."""
    counted = {
        "preemptions": 1,
        "recomputed_tokens": 9,
        "preempted_hits": 8,
        "prefix_cache_queries": 20,
        "prefix_cache_hits": 15,
        "deduplicated": 3,
    }
    totals = FakeSnapshot(**counted).as_dict() | {"elapsed_s": 1.0, "peak_rss_bytes": 1}
    summary = WorkerRecord("worker-0", 2, totals=totals).summary()
    assert counted == {name: getattr(summary, name) for name in counted}


def test_every_column_is_explained_in_the_documentation():
    """docs/statistics.md has one line for each column of each table, and for no other."""
    text = (Path(__file__).parents[2] / "docs/statistics.md").read_text()
    sections = re.split(r"^## ", text, flags=re.M)
    documented = {
        section.split("`")[1]: re.findall(r"^\| `(\w+)` \|", section, flags=re.M)
        for section in sections
        if section.startswith("`_stats/")
    }
    assert {
        "_stats/samples.parquet": SAMPLES_SCHEMA.names,
        "_stats/workers.parquet": WORKERS_SCHEMA.names,
        "_stats/rows.parquet": ROW_STATS_SCHEMA.names,
    } == documented


def test_a_counter_that_is_missing_from_a_report_is_an_error():
    """Nulls are for workers that never reported, not for a counter that has another name now."""
    with pytest.raises(KeyError, match="elapsed_s"):
        WorkerRecord("worker-0", 2, totals={"steps": 1}).as_row()

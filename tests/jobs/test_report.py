"""The progress line and the summary."""

import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from cluster.progress import Phase, Progress
from cluster.summary import JobSummary, WorkerSummary
from jobs.report import PlainProgress, live_progress, progress_line, summary_lines

RUNNING = Progress(
    phase=Phase.RUNNING,
    num_rows=1000,
    rows_done=250,
    num_errors=2,
    prompt_tokens=5000,
    generated_tokens=1000,
    elapsed_s=50.0,
    workers_ready=2,
    num_workers=2,
)


def worker(name: str, **changes) -> WorkerSummary:
    """A worker that did half of the job."""
    values = {
        "worker_id": name,
        "rows": 500,
        "prompt_tokens": 4000,
        "generated_tokens": 600,
        "prompt_tokens_per_s": 40.0,
        "generated_tokens_per_s": 6.0,
        "peak_rss_bytes": 3 << 20,
        "preemptions": 600,
        "recomputed_tokens": 5000,
        "preempted_hits": 800,
        "prefix_cache_queries": 3000,
        "prefix_cache_hits": 1000,
        "deduplicated": 7,
        "kv_blocks_peak": 5,
        "kv_blocks_total": 10,
        "dequant_hit_rate": 0.5,
        "dequant_bytes_peak": 2 << 20,
        "lost": False,
    }
    return WorkerSummary(**values | changes)


def job_summary(output: str, *workers: WorkerSummary, **changes) -> JobSummary:
    """A finished job of these workers."""
    values = {
        "output": output,
        "num_rows": 1000,
        "rows_before": 0,
        "errors": {"input": 2, "worker": 1},
        "num_parts": 1,
        "generated_tokens": 1200,
        "elapsed_s": 100.0,
        "ttft_p50_s": 0.5,
        "ttft_p90_s": 0.9,
        "ttft_p99_s": 0.99,
        "peak_rss_bytes": 1 << 20,
        "checksum": "0123456789abcdef",
        "workers": workers,
    }
    return JobSummary(**values | changes)


def test_progress_tells_rows_errors_speed_and_time_left():
    """A quarter done after 50 s leaves 150 s."""
    assert (
        "250 of 1,000 rows, 2 in error, 2 of 2 workers, 100.0 prompt tok/s, "
        "20.0 generated tok/s, 50 s, about 150 s left"
    ) == progress_line(RUNNING)


def test_progress_before_the_first_row_divides_by_nothing():
    """No rows and no seconds yet give no rate and no guess."""
    start = Progress(phase=Phase.RUNNING, num_rows=10, num_workers=1, workers_ready=1)
    assert "0 of 10 rows, 1 of 1 workers, 0.0 prompt tok/s, 0.0 generated tok/s, 0 s" == (
        progress_line(start)
    )


def test_a_log_gets_a_line_a_phase_and_every_note():
    """Without a terminal, progress does not flood the log, and what happened is always in it."""
    stream = io.StringIO()
    plain = PlainProgress(stream)
    for _ in range(50):
        plain.update(RUNNING)
    plain.update(Progress(phase=Phase.RUNNING, note="worker-1 is lost"))
    plain.update(Progress(phase=Phase.FINISHING))
    lines = stream.getvalue().splitlines()
    assert [progress_line(RUNNING), "worker-1 is lost", "writing statistics ..."] == lines


def test_a_terminal_gets_one_line_that_renews_itself(monkeypatch):
    """Notes stay above the line; markup in them is text."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with live_progress() as show:
        show(RUNNING)
        show(Progress(phase=Phase.RUNNING, note="worker-1 [red]is lost[/red]"))
    assert "worker-1 [red]is lost[/red]" in terminal.getvalue()
    assert "about 150 s left" in terminal.getvalue()


def test_summary_ends_with_the_number_of_row_errors():
    """The last line is what a script reads."""
    lines = summary_lines(job_summary("runs/x", worker("worker-0")))
    assert "done: 1,000 rows in 100.0 s, 3 row errors" == lines[-1]


def test_summary_counts_errors_by_kind():
    """In a line of its own, which is not there without errors."""
    some, none = (summary_lines(job_summary("x", **c)) for c in ({}, {"errors": {}}))
    assert "row errors           2 input, 1 worker" in some
    assert not [line for line in none if line.startswith("row errors")]


def test_summary_has_a_line_a_worker_and_one_for_all():
    """Prompt tokens of all are those computed, not those of prompts that were refused."""
    workers = worker("worker-0"), worker("worker-1", lost=True, dequant_hit_rate=None)
    lines = summary_lines(job_summary("runs/x", *workers))
    cells = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert ["500", "4,000", "40.0", "600", "6.0"] == cells["worker-0"][1:6]
    assert "(lost)" == cells["worker-1"][1]
    assert ["1,000", "8,000", "80.0", "1,200", "12.0"] == cells["all"][1:6]


def test_summary_tells_what_was_not_computed_and_what_was_given_up():
    """The prefix cache, equal rows and preemptions, over all workers."""
    lines = summary_lines(job_summary("runs/x", worker("worker-0"), worker("worker-1")))
    expected = "prefix cache         2,000 of 6,000 prompt tokens found (33%), 14 equal rows copied"
    assert expected in lines
    again = "10,000 tokens computed again, 1,600 still there"
    assert f"preemptions          1,200, {again}" in lines


def test_summary_of_no_rows_divides_by_nothing():
    """An empty dataset is a job like any other."""
    nothing = {"ttft_p50_s": None, "ttft_p90_s": None, "ttft_p99_s": None}
    empty = job_summary("out", num_rows=0, errors={}, elapsed_s=0.0, **nothing)
    lines = summary_lines(empty)
    assert "done: 0 rows in 0.0 s, 0 row errors" == lines[-1]
    assert "prefix cache         0 of 0 prompt tokens found, 0 equal rows copied" in lines
    assert "preemptions          0" in lines


def test_reading_examples_read_the_output(tmp_path):
    """The lines under "read it with" work as they stand, also for odd folder names."""
    output = tmp_path / "it's here"
    output.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), output / "part-00000.parquet")
    (output / "_SUCCESS").touch()
    lines = summary_lines(job_summary(str(output)))
    examples = [line.split("  ")[-1] for line in lines if line.startswith("read it with")]
    by_pyarrow, by_duckdb = [
        eval(example, {"pyarrow": pa, "duckdb": duckdb}) for example in examples
    ]
    assert [1, 2] == by_pyarrow["a"].to_pylist()
    assert [(1,), (2,)] == by_duckdb.fetchall()

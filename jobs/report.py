"""What a run shows: live progress while it works, and a summary when it is done."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from cluster.error_counts import in_words
from cluster.progress import Phase, Progress, ProgressCallback
from cluster.summary import JobSummary, WorkerSummary

from .text_table import aligned

_PLAIN_INTERVAL_S = 5.0


@contextmanager
def live_progress() -> Iterator[ProgressCallback]:
    """Show progress on standard error: a line that renews itself on a terminal, else a log."""
    stream = sys.stderr
    if not stream.isatty():
        yield PlainProgress(stream).update
        return
    from rich.console import Console
    from rich.status import Status

    console = Console(file=stream)
    with Status("", console=console) as status:

        def update(progress: Progress) -> None:
            if progress.note:
                console.print(progress.note, markup=False, highlight=False)
            status.update(progress_line(progress))

        yield update


class PlainProgress:
    """Progress as lines of a log: each note and phase at once, the rest every few seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._phase: Phase | None = None
        self._next = 0.0

    def update(self, progress: Progress) -> None:
        """Write a line if there is something new to say."""
        if progress.note:
            print(progress.note, file=self._stream, flush=True)
        if progress.phase is not self._phase or monotonic() >= self._next:
            self._phase = progress.phase
            self._next = monotonic() + _PLAIN_INTERVAL_S
            print(progress_line(progress), file=self._stream, flush=True)


def progress_line(progress: Progress) -> str:
    """One line: phase, rows, workers, speed and the time that is left."""
    if progress.phase is not Phase.RUNNING:
        return f"{progress.phase} ..."
    parts = [
        f"{progress.rows_done:,} of {progress.num_rows:,} rows",
        f"{progress.workers_ready} of {progress.num_workers} workers",
        f"{_rate(progress.prompt_tokens, progress.elapsed_s)} prompt tok/s",
        f"{_rate(progress.generated_tokens, progress.elapsed_s)} generated tok/s",
        f"{progress.elapsed_s:.0f} s",
    ]
    if progress.num_errors:
        parts.insert(1, f"{progress.num_errors:,} in error")
    if left := _seconds_left(progress):
        parts.append(f"about {left:.0f} s left")
    return ", ".join(parts)


def summary_lines(summary: JobSummary) -> list[str]:
    """The summary of a finished job; its last line states the number of row errors."""
    return [
        "",
        *_table(summary),
        "",
        f"prefix cache         {_prefix_cache(summary.workers)}",
        f"preemptions          {_preemptions(summary.workers)}",
        f"time to first token  {_seconds(summary.ttft_p50_s)} median, "
        f"{_seconds(summary.ttft_p90_s)} p90, {_seconds(summary.ttft_p99_s)} p99",
        f"peak memory          {_mib(_peak_memory(summary))} in all processes together, "
        f"driver {_mib(summary.peak_rss_bytes)}",
        *_errors(summary.errors),
        f"checksum             {summary.checksum} over row ids and generated tokens",
        f"output               {summary.output} ({summary.num_parts} parts)",
        *(f"read it with         {line}" for line in reading_examples(summary.output)),
        "",
        f"done: {summary.num_rows:,} rows{_before(summary)} in {summary.elapsed_s:.1f} s, "
        f"{summary.num_errors:,} row errors",
    ]


def _errors(errors: Mapping[str, int]) -> list[str]:
    """How many rows failed in which way; nothing if none did."""
    return [f"row errors           {in_words(errors)}"] if errors else []


def _before(summary: JobSummary) -> str:
    return f" ({summary.rows_before:,} of them before)" if summary.rows_before else ""


def reading_examples(output: str) -> list[str]:
    """One-liners that read the output as a table; names with a leading underscore are skipped."""
    quoted = output.replace("'", "''")
    return [
        f"pyarrow.parquet.read_table({output!r})",
        f"duckdb.sql(\"from '{quoted}/part-*.parquet'\")",
    ]


def _table(summary: JobSummary) -> list[str]:
    """A line a worker and one for all of them."""
    header = (
        "worker",
        "rows",
        "prompt tok",
        "tok/s",
        "generated",
        "tok/s",
        "peak memory",
        "KV blocks",
        "dequant cache",
    )
    rows = [header, *map(_worker_row, summary.workers), _total_row(summary)]
    return aligned(rows)


def _worker_row(worker: WorkerSummary) -> tuple[str, ...]:
    name = f"{worker.worker_id} (lost)" if worker.lost else worker.worker_id
    hit_rate = worker.dequant_hit_rate
    cache = "" if hit_rate is None else f"{_mib(worker.dequant_bytes_peak)}, {hit_rate:.0%} hits"
    return (
        name,
        f"{worker.rows:,}",
        f"{worker.prompt_tokens:,}",
        f"{worker.prompt_tokens_per_s:.1f}",
        f"{worker.generated_tokens:,}",
        f"{worker.generated_tokens_per_s:.1f}",
        _mib(worker.peak_rss_bytes),
        f"{worker.kv_blocks_peak:,} of {worker.kv_blocks_total:,}",
        cache,
    )


def _total_row(summary: JobSummary) -> tuple[str, ...]:
    """The whole job; prompt tokens are those computed, not those of prompts that were refused."""
    prompt_tokens = sum(worker.prompt_tokens for worker in summary.workers)
    generated_tokens = sum(worker.generated_tokens for worker in summary.workers)
    return (
        "all",
        f"{summary.num_rows:,}",
        f"{prompt_tokens:,}",
        _rate(prompt_tokens, summary.elapsed_s),
        f"{summary.generated_tokens:,}",
        _rate(generated_tokens, summary.elapsed_s),
        _mib(sum(worker.peak_rss_bytes for worker in summary.workers)),
        "",
        "",
    )


def _prefix_cache(workers: Iterable[WorkerSummary]) -> str:
    """What did not have to be computed."""
    queries = sum(worker.prefix_cache_queries for worker in workers)
    hits = sum(worker.prefix_cache_hits for worker in workers)
    copied = sum(worker.deduplicated for worker in workers)
    share = f" ({hits / queries:.0%})" if queries else ""
    return f"{hits:,} of {queries:,} prompt tokens found{share}, {copied:,} equal rows copied"


def _preemptions(workers: Iterable[WorkerSummary]) -> str:
    """How often rows gave up their blocks, and what that cost."""
    times = sum(worker.preemptions for worker in workers)
    again = sum(worker.recomputed_tokens for worker in workers)
    found = sum(worker.preempted_hits for worker in workers)
    return f"{times:,}, {again:,} tokens computed again, {found:,} still there" if times else "0"


def _peak_memory(summary: JobSummary) -> int:
    return summary.peak_rss_bytes + sum(worker.peak_rss_bytes for worker in summary.workers)


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:.1f}" if seconds > 0 else "0.0"


def _seconds_left(progress: Progress) -> float | None:
    """By the rows of this driver so far; None while there are none."""
    done = progress.rows_done - progress.rows_before
    if not done:
        return None
    rows_left = progress.num_rows - progress.rows_done
    return progress.elapsed_s / done * rows_left


def _seconds(seconds: float | None) -> str:
    return "none" if seconds is None else f"{seconds:.2f} s"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB"

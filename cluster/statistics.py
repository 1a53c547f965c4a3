"""Statistics as Arrow tables: ``_stats/samples.parquet``, ``workers.parquet``, ``rows.parquet``.

``docs/statistics.md`` explains every column and unit for users.
"""

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .commit import committed_file
from .location import Location
from .output_columns import ROW_STATS_SCHEMA
from .run_directory import RunDirectory

SAMPLES_SCHEMA: Final = pa.schema(
    [
        ("worker_id", pa.string()),
        ("elapsed_s", pa.float64()),
        ("interval_s", pa.float64()),
        ("step_s", pa.float64()),
        ("prefill_tokens", pa.int64()),
        ("decode_tokens", pa.int64()),
        ("recomputed_tokens", pa.int64()),
        ("preemptions", pa.int64()),
        ("prefix_cache_queries", pa.int64()),
        ("prefix_cache_hits", pa.int64()),
        ("preempted_hits", pa.int64()),
        ("running", pa.int64()),
        ("waiting", pa.int64()),
        ("kv_blocks_used", pa.int64()),
        ("kv_blocks_idle", pa.int64()),
        ("kv_blocks_total", pa.int64()),
        ("dequant_hits", pa.int64()),
        ("dequant_misses", pa.int64()),
        ("dequant_bytes", pa.int64()),
        ("rss_bytes", pa.int64()),
        ("available_bytes", pa.int64()),
        ("max_running", pa.int64()),
    ]
)

WORKERS_SCHEMA: Final = pa.schema(
    [
        ("worker_id", pa.string()),
        ("node", pa.string()),
        ("pid", pa.int64()),
        ("lost", pa.bool_()),
        ("loss_reason", pa.string()),
        ("threads", pa.int64()),
        ("numerics", pa.string()),
        ("tokenmill_version", pa.string()),
        ("load_s", pa.float64()),
        ("elapsed_s", pa.float64()),
        ("shards", pa.int64()),
        ("rows", pa.int64()),
        ("row_errors", pa.int64()),
        ("steps", pa.int64()),
        ("step_s", pa.float64()),
        ("prefill_tokens", pa.int64()),
        ("decode_tokens", pa.int64()),
        ("recomputed_tokens", pa.int64()),
        ("preemptions", pa.int64()),
        ("prefix_cache_queries", pa.int64()),
        ("prefix_cache_hits", pa.int64()),
        ("preempted_hits", pa.int64()),
        ("prefix_cache_evictions", pa.int64()),
        ("deduplicated", pa.int64()),
        ("kv_blocks_peak", pa.int64()),
        ("kv_blocks_total", pa.int64()),
        ("kv_bytes_peak", pa.int64()),
        ("kv_bytes_total", pa.int64()),
        ("dequant_hits", pa.int64()),
        ("dequant_misses", pa.int64()),
        ("dequant_evictions", pa.int64()),
        ("dequant_bytes_peak", pa.int64()),
        ("kernels_compiled", pa.int64()),
        ("peak_rss_bytes", pa.int64()),
    ]
)

_SAMPLES_A_FILE: Final = 4096
_FLUSH_EVERY_S: Final = 30.0  # a killed driver loses no more of them


class SampleSpool:
    """Collects the per-second samples of all workers in bounded memory.

    Args:
        run: whose work folder takes what memory should not hold.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._pending: list[Mapping[str, Any]] = []
        self._next = monotonic() + _FLUSH_EVERY_S

    def add(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Take samples in.

        Raises:
            JobStoppedError: the storage failed.
        """
        self._pending.extend(samples)
        if len(self._pending) >= _SAMPLES_A_FILE or monotonic() >= self._next:
            self.flush()

    def write(self) -> None:
        """Write ``samples.parquet``.

        Raises:
            JobStoppedError: the storage failed.
        """
        self.flush()
        files = self._run.work_files("samples-*.arrow")
        _merge(self._run, files, SAMPLES_SCHEMA, "samples.parquet")

    def flush(self) -> None:
        """Bring what is in memory to the work folder, behind what earlier drivers left there.

        Raises:
            JobStoppedError: the storage failed.
        """
        self._next = monotonic() + _FLUSH_EVERY_S
        if not self._pending:
            return
        names = [path.stem for path in self._run.work_files("samples-*.arrow")]
        number = int(names[-1].split("-")[1]) + 1 if names else 0
        path = self._run.shards / f"samples-{number:06d}.arrow"
        self._run.commit_arrow(path, pa.Table.from_pylist(self._pending, SAMPLES_SCHEMA))
        self._pending.clear()


def write_worker_totals(run: RunDirectory, totals: Iterable[Mapping[str, Any]]) -> None:
    """Write ``workers.parquet``, one row for each worker there was.

    Raises:
        JobStoppedError: the storage failed.
    """
    table = pa.Table.from_pylist(list(totals), WORKERS_SCHEMA)
    with committed_file(run.stats / "workers.parquet") as file:
        pq.write_table(table, file)


def write_row_stats(run: RunDirectory) -> None:
    """Write ``rows.parquet`` from what the parts left, in row order.

    Raises:
        JobStoppedError: the storage failed.
    """
    files = run.work_files("stats-*.arrow")
    _merge(run, files, ROW_STATS_SCHEMA, "rows.parquet")


def _merge(run: RunDirectory, files: list[Location], schema: pa.Schema, name: str) -> None:
    """Put Arrow files one after the other into a Parquet file, one in memory at a time."""
    target = run.stats / name
    with committed_file(target) as sink, pq.ParquetWriter(sink, schema) as writer:
        for path in files:
            writer.write_table(run.read_arrow(path))

"""A finished run is turned into an unfinished one, so that its rows in error can be done again."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from .commit import storage_errors
from .errors import JobConfigError
from .input_files import display
from .journal import restore_journal
from .manifest import Manifest, PartRecord
from .output_columns import ROW_STATS_SCHEMA
from .retry import Retry
from .run_directory import RunDirectory
from .statistics import SAMPLES_SCHEMA, WORKERS_SCHEMA
from .table_cursor import TableCursor


def reopen(run: RunDirectory, kinds: frozenset[str]) -> int:
    """Begin a retry in a finished run.

    All that its drivers left in the work folder before it was finished is put there again while
    ``_SUCCESS`` still stands; to remove that is the one step that begins the retry. A driver that
    is killed before leaves a finished run, one that is killed after leaves one to go on with.

    Args:
        run: finished, without a work folder.
        kinds: the kinds of errors whose rows are wanted again.

    Returns:
        How many rows these are; if there are none, nothing is changed.

    Raises:
        JobConfigError: the run's statistics are gone or damaged.
        JobStoppedError: the storage failed.
    """
    manifest = run.manifest
    assert manifest is not None, "the run is finished"
    retry = Retry(1 + max((part.retry for part in manifest.parts), default=0), kinds)
    num_wanted = sum(map(retry.num_wanted, manifest.parts))
    if num_wanted:
        run.make_folders()
        _restore_parts(run, manifest.parts)
        _restore_workers(run, manifest, num_wanted)
        _restore_samples(run)
        retry.write(run)
        run.reopen()
    return num_wanted


def _restore_parts(run: RunDirectory, records: list[PartRecord]) -> None:
    """Give each part its record and its rows' statistics back."""
    with _opened(run, "rows.parquet", ROW_STATS_SCHEMA) as file:
        if file.metadata.num_rows != sum(record.num_rows for record in records):
            raise ValueError("it does not have the rows of the parts")
        tables = (pa.Table.from_batches([batch]) for batch in file.iter_batches())
        rows = TableCursor(tables, ROW_STATS_SCHEMA)
        for record in records:
            run.commit_arrow(run.row_stats_path(record.index), rows.read(record.num_rows))
            run.record_part(record)


def _restore_workers(run: RunDirectory, manifest: Manifest, num_wanted: int) -> None:
    with _opened(run, "workers.parquet", WORKERS_SCHEMA) as file:
        workers = file.read().to_pylist()
    restore_journal(run, manifest.drivers, manifest.num_rows - num_wanted, workers)


def _restore_samples(run: RunDirectory) -> None:
    with _opened(run, "samples.parquet", SAMPLES_SCHEMA) as file:
        for index in range(file.num_row_groups):
            path = run.shards / f"samples-{index:06d}.arrow"
            run.commit_arrow(path, file.read_row_group(index))


@contextmanager
def _opened(run: RunDirectory, name: str, schema: pa.Schema) -> Iterator[pq.ParquetFile]:
    """Open a table of statistics that has this schema."""
    path = run.stats / name
    try:
        if not path.exists():
            raise ValueError("it is gone")
        with (
            storage_errors(run.path),
            path.open("rb") as opened,
            pq.ParquetFile(opened) as file,
        ):
            if not file.schema_arrow.equals(schema):
                raise ValueError("it has other columns than this tokenmill writes")
            yield file
    except ValueError as error:
        reason = str(error).split("\n", 1)[0]
        raise JobConfigError(
            f"{display(str(path))}: cannot be used ({reason}), and rows in error cannot be done "
            "again without it; use a new output folder"
        ) from error

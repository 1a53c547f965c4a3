"""The results of a part's rows in row order: from shards alone, or the part's own, corrected."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from worker.engine.checksum import TokenChecksum
from worker.engine.request import RowId

from .commit import storage_errors
from .manifest import PartRecord
from .output_columns import ROW_STATS_SCHEMA, SHARD_SCHEMA
from .run_directory import RunDirectory
from .table_cursor import TableCursor

_ROWS_A_BATCH: Final = 1024


class Results(Protocol):
    """Where the results of a part's rows come from."""

    @property
    def checksum(self) -> TokenChecksum:
        """Over the tokens of all rows, once they are read."""

    def read(self, num_rows: int) -> pa.Table:
        """Return the next rows, with the columns of a shard."""


class ShardResults:
    """The rows of shards, one shard after the other.

    Args:
        run: where the shards are.
        shards: their rows, ascending.
    """

    def __init__(self, run: RunDirectory, shards: Sequence[range]) -> None:
        self.checksum = TokenChecksum()
        self._run = run
        self._cursor = TableCursor(self._tables(shards), SHARD_SCHEMA)

    def read(self, num_rows: int) -> pa.Table:
        """Return the next rows."""
        return self._cursor.read(num_rows)

    def _tables(self, shards: Sequence[range]) -> Iterator[pa.Table]:
        for rows in shards:
            table = self._run.read_arrow(self._run.shard_path(rows))
            _count(table, self.checksum)
            yield table


class CorrectedResults:
    """The rows of a part that is written, some of them replaced by others.

    Columns that the part does not hold are null in the rows that stay.

    Args:
        run: where the part is.
        record: of the part.
        names: the part's result columns by their own names, and by those in the file.
        replaced: the rows that are replaced, ascending; all of them failed.
        corrections: the rows in their place.
    """

    def __init__(
        self,
        run: RunDirectory,
        record: PartRecord,
        names: dict[str, str],
        replaced: Sequence[range],
        corrections: ShardResults,
    ) -> None:
        self._next_row = record.first_row
        self._part = TableCursor(_part_tables(run, record, names), SHARD_SCHEMA)
        self._replaced = deque(replaced)
        self._corrections = corrections
        self._kept = TokenChecksum(int(record.checksum, 16))
        self._kept.take_out(_without_tokens(replaced))

    @property
    def checksum(self) -> TokenChecksum:
        """That of the part, its failed rows taken out and those in their place counted in."""
        total = TokenChecksum(self._kept.value)
        total.merge(self._corrections.checksum)
        return total

    def read(self, num_rows: int) -> pa.Table:
        """Return the next rows."""
        stop = self._next_row + num_rows
        pieces = [SHARD_SCHEMA.empty_table()]
        while self._next_row < stop:
            pieces.append(self._read_alike(stop))
            self._next_row += pieces[-1].num_rows
        return pa.concat_tables(pieces)

    def _read_alike(self, stop: int) -> pa.Table:
        """Return rows that all stay, or are all replaced."""
        rows = self._replaced[0] if self._replaced else range(stop, stop)
        if self._next_row < rows.start:
            return self._part.read(min(stop, rows.start) - self._next_row)
        end = min(stop, rows.stop)
        if end == rows.stop:
            self._replaced.popleft()
        self._part.read(end - self._next_row)
        return self._corrections.read(end - self._next_row)


def _part_tables(
    run: RunDirectory, record: PartRecord, names: dict[str, str]
) -> Iterator[pa.Table]:
    statistics = TableCursor(
        iter([run.read_arrow(run.row_stats_path(record.index))]), ROW_STATS_SCHEMA
    )
    path = run.part_path(record.index)
    with storage_errors(run.path), path.open("rb") as file, pq.ParquetFile(file) as part:
        batches = part.iter_batches(_ROWS_A_BATCH, columns=list(names.values()), use_threads=False)
        for batch in batches:
            beside = statistics.read(batch.num_rows)
            columns = {name: batch.column(in_file) for name, in_file in names.items()}
            columns |= {name: beside.column(name) for name in ROW_STATS_SCHEMA.names}
            yield pa.Table.from_arrays(
                [
                    columns.get(field.name, pa.nulls(batch.num_rows, field.type))
                    for field in SHARD_SCHEMA
                ],
                schema=SHARD_SCHEMA,
            )


def _without_tokens(ranges: Sequence[range]) -> TokenChecksum:
    checksum = TokenChecksum()
    for rows in ranges:
        for row_id in rows:
            checksum.add(RowId(row_id), ())
    return checksum


def _count(results: pa.Table, checksum: TokenChecksum) -> None:
    columns = [results.column(name) for name in ("generated_tokens", "further_tokens")]
    ids = results.column("row_id").to_pylist()
    for row_id, first, further in zip(ids, *columns, strict=True):
        checksum.add(RowId(row_id), _in_a_row([first.as_py(), *further.as_py()]))


def _in_a_row(completions: list[list[int]]) -> Iterator[int]:
    """All completions' tokens, -1 between two: no other completions give the same."""
    for index, tokens in enumerate(completions):
        if index > 0:
            yield -1
        yield from tokens

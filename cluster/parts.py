"""Parts: the output files, the user's columns and the results side by side in input order."""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from worker.engine.checksum import TokenChecksum
from worker.engine.request import RowId

from .commit import HashingFile, committed_file
from .committed import NOTHING, Committed
from .dataset import InputDataset
from .manifest import PartRecord
from .optional_column import OptionalColumn
from .output_columns import ROW_STATS_SCHEMA, SHARD_SCHEMA, result_names
from .plan import CuttingRule
from .reader import read_user_columns
from .run_directory import RunDirectory

# Fixed, so that equal rows give equal bytes.
_WRITER_OPTIONS: Final[dict[str, Any]] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "use_dictionary": True,
    "write_statistics": True,
}
_ROW_GROUP_ROWS: Final = 65_536
_ROW_GROUP_BYTES: Final = 64 << 20
_BYTES_A_TOKEN: Final = 64  # what a token counts in a row group's size: its id, text, log-probs


class PartWriter:
    """Writes each part as soon as all its rows are committed, then lets its shards go.

    The bytes of a part depend on its rows alone: row groups are cut by what the input holds and by
    token counts, and results are put into one chunk first, so that neither the number of workers
    nor the shards' borders can be seen in the file.

    Args:
        run: where parts go.
        dataset: the source of the user's columns, read a second time here.
        rule: where parts begin and end.
        schema: of the parts.
        optional: result columns that were asked for.
        committed: what an earlier driver left.
    """

    def __init__(
        self,
        run: RunDirectory,
        dataset: InputDataset,
        rule: CuttingRule,
        schema: pa.Schema,
        optional: frozenset[OptionalColumn],
        committed: Committed = NOTHING,
    ) -> None:
        self._run = run
        self._rule = rule
        self._num_rows = dataset.num_rows
        self._schema = schema
        self._names = result_names(optional)
        self._reader = read_user_columns(dataset)
        indices = range(rule.num_parts(dataset.num_rows))
        self._unwritten = deque(index for index in indices if index not in committed.parts)
        self._committed: dict[int, list[range]] = {}
        for rows in committed.shards:
            self.add(rows)

    @property
    def is_done(self) -> bool:
        """Whether every part is written."""
        return not self._unwritten

    def add(self, rows: range) -> None:
        """Take note of a committed shard."""
        self._committed.setdefault(self._rule.part_of(rows.start), []).append(rows)

    def write_ready(self) -> Iterator[PartRecord]:
        """Write the parts whose turn has come and whose rows are all committed.

        Raises:
            InputError: the user's columns cannot be read.
            JobStoppedError: the storage failed; the shards are still there.
        """
        while not self.is_done and self._is_ready():
            index = self._unwritten[0]
            shards = sorted(self._committed.pop(index, []), key=lambda rows: rows.start)
            yield self._write(index, shards)
            self._unwritten.popleft()

    def _is_ready(self) -> bool:
        index = self._unwritten[0]
        wanted = self._rule.part_range(index, self._num_rows)
        return sum(map(len, self._committed.get(index, []))) == len(wanted)

    def _write(self, index: int, shards: list[range]) -> PartRecord:
        rows = self._rule.part_range(index, self._num_rows)
        self._reader.skip_to(rows.start)
        results = _ShardResults(self._run, shards)
        totals = _PartTotals()
        with committed_file(self._run.part_path(index)) as file:
            self._write_rows(file, len(rows), results, totals)
        record = PartRecord(
            index=index,
            first_row=rows.start,
            num_rows=len(rows),
            size=file.size,
            sha256=file.sha256,
            num_errors=totals.num_errors,
            num_prompt_tokens=totals.num_prompt_tokens,
            num_generated_tokens=totals.num_generated_tokens,
            checksum=str(totals.checksum),
        )
        statistics = pa.concat_tables([ROW_STATS_SCHEMA.empty_table(), *totals.row_stats])
        self._run.commit_arrow(self._run.shards / f"stats-{index:05d}.arrow", statistics)
        self._run.record_part(record)
        self._run.remove(self._run.shard_path(shard) for shard in shards)
        return record

    def _write_rows(
        self, file: HashingFile, num_rows: int, results: "_ShardResults", totals: "_PartTotals"
    ) -> None:
        with pq.ParquetWriter(file, self._schema, **_WRITER_OPTIONS) as writer:
            group = _RowGroup()
            for batch in self._reader.read(num_rows):
                group.add(batch, results.read(batch.num_rows))
                if group.is_full:
                    self._write_row_group(writer, group, totals)
                    group = _RowGroup()
            if group.batches:
                self._write_row_group(writer, group, totals)

    def _write_row_group(
        self, writer: pq.ParquetWriter, group: "_RowGroup", totals: "_PartTotals"
    ) -> None:
        user = pa.Table.from_batches(group.batches)
        results = pa.concat_tables(group.results).combine_chunks()
        totals.add(results)
        columns = user.columns + [results.column(name) for name in self._names]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        writer.write_table(table, row_group_size=table.num_rows)


class _RowGroup:
    """Rows that will be one row group: the user's batches and the results beside them."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.results: list[pa.Table] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch, results: pa.Table) -> None:
        self.batches.append(batch)
        self.results.append(results)
        tokens = _sum(results, "num_prompt_tokens") + _num_generated_tokens(results)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes + _BYTES_A_TOKEN * tokens

    @property
    def is_full(self) -> bool:
        return self._rows >= _ROW_GROUP_ROWS or self._bytes >= _ROW_GROUP_BYTES


class _ShardResults:
    """A cursor over the tables of consecutive shards."""

    def __init__(self, run: RunDirectory, shards: list[range]) -> None:
        self._run = run
        self._shards = deque(shards)
        self._rest = SHARD_SCHEMA.empty_table()

    def read(self, num_rows: int) -> pa.Table:
        """Return the next rows."""
        pieces = []
        while num_rows > 0:
            if self._rest.num_rows == 0:
                path = self._run.shard_path(self._shards.popleft())
                self._rest = self._run.read_arrow(path)
                continue
            piece = self._rest.slice(0, num_rows)
            self._rest = self._rest.slice(piece.num_rows)
            num_rows -= piece.num_rows
            pieces.append(piece)
        return pa.concat_tables(pieces)


class _PartTotals:
    """What a part's record says of its rows, and their statistics."""

    def __init__(self) -> None:
        self.num_errors = 0
        self.num_prompt_tokens = 0
        self.num_generated_tokens = 0
        self.checksum = TokenChecksum()
        self.row_stats: list[pa.Table] = []

    def add(self, results: pa.Table) -> None:
        self.num_errors += results.num_rows - results.column("error").null_count
        self.num_prompt_tokens += _sum(results, "num_prompt_tokens")
        self.num_generated_tokens += _num_generated_tokens(results)
        columns = [results.column(name) for name in ("generated_tokens", "further_tokens")]
        ids = results.column("row_id").to_pylist()
        for row_id, first, further in zip(ids, *columns, strict=True):
            self.checksum.add(RowId(row_id), _in_a_row([first.as_py(), *further.as_py()]))
        self.row_stats.append(results.select(ROW_STATS_SCHEMA.names))


def _in_a_row(completions: list[list[int]]) -> Iterator[int]:
    """All completions' tokens, -1 between two: no other completions give the same."""
    for index, tokens in enumerate(completions):
        if index > 0:
            yield -1
        yield from tokens


def _num_generated_tokens(results: pa.Table) -> int:
    """Tokens of all completions; the column of that name has those of the first."""
    further = pc.list_value_length(pc.list_flatten(results.column("further_tokens")))
    return _sum(results, "num_generated_tokens") + int(pc.sum(further, min_count=0).as_py())


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table.column(column), min_count=0).as_py())

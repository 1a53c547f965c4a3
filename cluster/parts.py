"""Parts: the output files, the user's columns and the results side by side in input order."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .commit import HashingFile, committed_file
from .committed import NOTHING, Committed
from .dataset import InputDataset
from .error_counts import count_errors
from .manifest import PartRecord
from .optional_column import OptionalColumn
from .output_columns import ROW_STATS_SCHEMA, result_names
from .part_commit import promote, record_ahead
from .plan import CuttingRule
from .reader import read_user_columns
from .results import CorrectedResults, Results, ShardResults
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

    A part that is there already and has rows that are retried is written anew once these are
    committed: with the bytes that it would have if they had never failed.

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
        self._earlier = committed
        indices = range(rule.num_parts(dataset.num_rows))
        self._unwritten = deque(
            index for index in indices if index not in committed.parts or index in committed.retried
        )
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
        rows = self._rule.part_range(index, self._num_rows)
        wanted = self._earlier.retried.get(index, (rows,))
        return sum(map(len, self._committed.get(index, []))) == sum(map(len, wanted))

    def _write(self, index: int, shards: list[range]) -> PartRecord:
        rows = self._rule.part_range(index, self._num_rows)
        self._reader.skip_to(rows.start)
        results = self._results(index, shards)
        totals = _PartTotals()
        with committed_file(self._run.part_path(index)) as file:
            self._write_rows(file, len(rows), results, totals)
            record = PartRecord(
                index=index,
                first_row=rows.start,
                num_rows=len(rows),
                size=file.size,
                sha256=file.sha256,
                errors=dict(totals.errors),
                num_prompt_tokens=totals.num_prompt_tokens,
                num_generated_tokens=totals.num_generated_tokens,
                checksum=str(results.checksum),
                retry=self._earlier.retry,
            )
            record_ahead(self._run, record, totals.statistics)
        promote(self._run, index)
        self._run.remove(self._run.shard_path(shard) for shard in shards)
        return record

    def _results(self, index: int, shards: list[range]) -> Results:
        results = ShardResults(self._run, shards)
        if index not in self._earlier.retried:
            return results
        in_file = self._schema.names[-len(self._names) :]
        return CorrectedResults(
            self._run,
            self._earlier.parts[index],
            dict(zip(self._names, in_file, strict=True)),
            self._earlier.retried[index],
            results,
        )

    def _write_rows(
        self, file: HashingFile, num_rows: int, results: Results, totals: "_PartTotals"
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


class _PartTotals:
    """What a part's record says of its rows, and their statistics."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.num_prompt_tokens = 0
        self.num_generated_tokens = 0
        self._statistics = [ROW_STATS_SCHEMA.empty_table()]

    @property
    def statistics(self) -> pa.Table:
        """Statistics of all rows."""
        return pa.concat_tables(self._statistics)

    def add(self, results: pa.Table) -> None:
        self.errors += count_errors(results)
        self.num_prompt_tokens += _sum(results, "num_prompt_tokens")
        self.num_generated_tokens += _num_generated_tokens(results)
        self._statistics.append(results.select(ROW_STATS_SCHEMA.names))


def _num_generated_tokens(results: pa.Table) -> int:
    """Tokens of all completions; the column of that name has those of the first."""
    completions = results.column("completions")
    listed = pc.struct_field(pc.list_flatten(completions), "num_generated_tokens")
    alone = results.filter(pc.is_null(completions))
    return _sum(alone, "num_generated_tokens") + int(pc.sum(listed, min_count=0).as_py())


def _sum(table: pa.Table, column: str) -> int:
    return int(pc.sum(table.column(column), min_count=0).as_py())

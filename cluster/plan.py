"""The shard plan: a rule that cuts the rows into shards, the same every time it is applied.

No list of shards is kept. Parts are ranges of a fixed number of rows; inside a part, rows are
taken in order until a shard is full by rows or by bytes. A run that goes on cuts the rows that
are still wanted by the same rule; where it cuts them cannot be seen in a part.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from .config import ClusterConfig
from .dataset import InputDataset
from .reader import RowReader
from .row_sizes import row_sizes

_SHARDS_PER_WORKER: Final = 4


@dataclass(frozen=True, slots=True)
class CuttingRule:
    """How rows are cut; recorded in the manifest.

    Attributes:
        shard_rows: most rows of a shard.
        shard_bytes: a shard ends with the row that brings its requests to this size or above.
        part_rows: rows of a part; the last part may have fewer.
    """

    shard_rows: int
    shard_bytes: int
    part_rows: int

    @classmethod
    def for_dataset(
        cls, dataset: InputDataset, config: ClusterConfig, num_workers: int
    ) -> "CuttingRule":
        """Derive the rule from the settings and what the footers say.

        A small dataset gets smaller shards, so that every worker has several. A dataset of wide
        rows gets parts of fewer rows, so that a part stays near ``part_bytes``.
        """
        fair = dataset.num_rows // (num_workers * _SHARDS_PER_WORKER)
        wide = config.part_bytes * dataset.num_rows // max(1, dataset.num_bytes)
        return cls(
            shard_rows=max(1, min(config.shard_rows, fair)),
            shard_bytes=config.shard_bytes,
            part_rows=max(1, min(config.part_rows, wide or 1)),
        )

    def part_of(self, row_id: int) -> int:
        """Return the index of the part that a row belongs to."""
        return row_id // self.part_rows

    def part_range(self, part: int, num_rows: int) -> range:
        """Return a part's row ids."""
        return range(part * self.part_rows, min(num_rows, (part + 1) * self.part_rows))

    def num_parts(self, num_rows: int) -> int:
        """Return how many parts a dataset gives; one, with no rows, for an empty one."""
        return max(1, -(-num_rows // self.part_rows))


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of rows, the unit of dispatch and commit.

    Attributes:
        first_row: row id of its first row; identifies the shard.
        num_rows: its rows.
        payload: their requests as an Arrow IPC stream.
    """

    first_row: int
    num_rows: int
    payload: bytes

    @property
    def rows(self) -> range:
        """Row ids."""
        return range(self.first_row, self.first_row + self.num_rows)

    def halves(self) -> "tuple[Shard, Shard]":
        """Return the first and the second half of a shard of two rows at least."""
        middle = self.num_rows // 2
        with pa.ipc.open_stream(self.payload) as reader:
            table = reader.read_all()
        first, second = (table.slice(0, middle), table.slice(middle))
        return (
            Shard(self.first_row, middle, _ipc_stream(first.to_batches())),
            Shard(self.first_row + middle, second.num_rows, _ipc_stream(second.to_batches())),
        )


def cut_shards(reader: RowReader, rule: CuttingRule, wanted: Iterable[range]) -> Iterator[Shard]:
    """Yield the shards of all wanted rows; none crosses the border of a part.

    Args:
        reader: gives request columns; not past the first wanted row.
        rule: where to cut.
        wanted: row ids, ascending.
    """
    for rows in wanted:
        reader.skip_to(rows.start)
        yield from _cut(reader, rule, rows.stop)


def _cut(reader: RowReader, rule: CuttingRule, stop: int) -> Iterator[Shard]:
    while (start := reader.next_row) < stop:
        limit = min(rule.shard_rows, rule.part_range(rule.part_of(start), stop).stop - start)
        batches, taken, size = [], 0, 0
        for batch in reader.read(limit):
            ends = size + np.cumsum(row_sizes(batch))
            rows = min(batch.num_rows, int(np.searchsorted(ends, rule.shard_bytes)) + 1)
            batches.append(batch.slice(0, rows))
            taken, size = taken + rows, int(ends[rows - 1])
            if size >= rule.shard_bytes:
                reader.give_back(batch.slice(rows))
                break
        yield Shard(start, taken, _ipc_stream(batches))


def _ipc_stream(batches: list[pa.RecordBatch]) -> bytes:
    """Serialise batches one after the other: combining them could overflow string offsets."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())

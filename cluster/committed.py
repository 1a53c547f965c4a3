"""What an earlier driver of the same run committed, checked before it is trusted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from .location import Location
from .manifest import PartRecord
from .plan import CuttingRule
from .run_directory import RunDirectory
from .shard_table import is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Rows that need not be computed again.

    Attributes:
        parts: records of the parts whose files match them, by index.
        shards: row ids of the shards that are in no part yet, ascending.
        shard_errors: rows in these shards that failed.
        first_error: the first error in these shards.
        damaged: files that were there and could not be trusted; they are gone now.
    """

    parts: dict[int, PartRecord] = field(default_factory=dict)
    shards: tuple[range, ...] = ()
    shard_errors: int = 0
    first_error: str | None = None
    damaged: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of parts and shards."""
        return sum(part.num_rows for part in self.parts.values()) + sum(map(len, self.shards))

    @property
    def num_errors(self) -> int:
        """Rows of parts and shards that failed."""
        return sum(part.num_errors for part in self.parts.values()) + self.shard_errors

    def missing(self, num_rows: int) -> Iterator[range]:
        """Yield the rows of a dataset that are in neither, ascending."""
        parts = (range(p.first_row, p.first_row + p.num_rows) for p in self.parts.values())
        start = 0
        for rows in sorted([*parts, *self.shards], key=lambda rows: rows.start):
            if rows.start > start:
                yield range(start, rows.start)
            start = max(start, rows.stop)
        if start < num_rows:
            yield range(start, num_rows)


NOTHING: Final = Committed()
"""Of a run that has just begun."""


def recover(run: RunDirectory, rule: CuttingRule) -> Committed:
    """Check what lies in a run directory, and remove what no driver will need.

    A part counts if its size and SHA-256 are those of its record, a shard if it can be read and
    has the rows of its name. Shards of a part that counts, files without a final name and
    whatever is damaged are removed: those rows are computed again.

    Raises:
        JobStoppedError: the storage failed.
    """
    run.remove(run.temporaries())
    parts, damaged_parts = _parts(run)
    _remove_leftovers(run, rule, parts)
    shards: list[range] = []
    damaged_shards: list[Location] = []
    errors: list[str] = []
    for rows in run.shard_ranges():
        table = run.read_shard(rows)
        if table is None or not is_whole(table, rows) or (shards and rows.start < shards[-1].stop):
            damaged_shards.append(run.shard_path(rows))
            continue
        shards.append(rows)
        errors += table.column("error").drop_null().to_pylist()
    run.remove(damaged_shards)
    return Committed(
        parts=parts,
        shards=tuple(shards),
        shard_errors=len(errors),
        first_error=next(iter(errors), None),
        damaged=tuple(path.name for path in [*damaged_parts, *damaged_shards]),
    )


def _parts(run: RunDirectory) -> tuple[dict[int, PartRecord], list[Location]]:
    """Return the parts that count, and the files of those that do not; the latter go."""
    records = run.part_records()
    trusted = {record.index: record for record in records if run.holds_part(record)}
    damaged = [record.index for record in records if record.index not in trusted]
    run.remove(run.record_path(index) for index in damaged)
    files = [run.part_path(index) for index in damaged]
    run.remove(files)
    return trusted, files


def _remove_leftovers(run: RunDirectory, rule: CuttingRule, parts: dict[int, PartRecord]) -> None:
    """Remove the shards of written parts: the driver was killed before it could."""
    done = [rows for rows in run.shard_ranges() if rule.part_of(rows.start) in parts]
    run.remove(run.shard_path(rows) for rows in done)

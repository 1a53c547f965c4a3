"""What an earlier driver of the same run committed, checked before it is trusted."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from .error_counts import count_errors
from .location import Location
from .manifest import PartRecord
from .part_commit import settle_parts
from .plan import CuttingRule
from .retry import Retry
from .row_ranges import holds, without
from .run_directory import RunDirectory
from .shard_table import is_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Rows that need not be computed again.

    Attributes:
        parts: records of the parts whose files match them, by index.
        retried: rows of these parts that a retry wants again, ascending, by the part's index; only
            parts that have any.
        retry: number of the retry that is under way; 0 if none is.
        shards: row ids of the shards that are in no part yet, ascending.
        errors: rows in parts and shards that failed, by kind, without the retried ones.
        first_error: the first error in these shards.
        damaged: files that were there and could not be trusted; they are gone now.
    """

    parts: dict[int, PartRecord] = field(default_factory=dict)
    retried: dict[int, tuple[range, ...]] = field(default_factory=dict)
    retry: int = 0
    shards: tuple[range, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)
    first_error: str | None = None
    damaged: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        """Rows of parts and shards, without the retried ones that are in no shard."""
        retried = (rows for ranges in self.retried.values() for rows in ranges)
        parts = sum(part.num_rows for part in self.parts.values())
        return parts - sum(map(len, retried)) + sum(map(len, self.shards))

    def missing(self, num_rows: int) -> Iterator[range]:
        """Yield the rows of a dataset that are to be computed, ascending."""
        kept = (
            rows
            for index, part in self.parts.items()
            for rows in without(part.rows, self.retried.get(index, ()))
        )
        done = sorted([*kept, *self.shards], key=lambda rows: rows.start)
        return without(range(num_rows), done)


NOTHING: Final = Committed()
"""Of a run that has just begun."""


def recover(run: RunDirectory, rule: CuttingRule) -> Committed:
    """Check what lies in a run directory, and remove what no driver will need.

    A part counts if its size and SHA-256 are those of its record, a shard if it can be read and
    has the rows of its name. Shards of a part that counts, unless they correct it, files without a
    final name and whatever is damaged are removed: those rows are computed again.

    Raises:
        JobStoppedError: the storage failed.
    """
    run.remove(run.temporaries())
    settle_parts(run)
    retry = Retry.read(run)
    parts, damaged_parts = _parts(run)
    retried = _retried(run, retry, parts)
    _remove_leftovers(run, rule, parts, retried)
    shards: list[range] = []
    damaged_shards: list[Location] = []
    errors: Counter[str] = Counter()
    first_error: str | None = None
    for rows in run.shard_ranges():
        table = run.read_shard(rows)
        if table is None or not is_whole(table, rows) or (shards and rows.start < shards[-1].stop):
            damaged_shards.append(run.shard_path(rows))
            continue
        shards.append(rows)
        errors += count_errors(table)
        first_error = first_error or next(iter(table.column("error").drop_null().to_pylist()), None)
    run.remove(damaged_shards)
    for record in parts.values():
        errors.update(retry.kept_errors(record))
    return Committed(
        parts=parts,
        retried=retried,
        retry=retry.number,
        shards=tuple(shards),
        errors=errors,
        first_error=first_error,
        damaged=tuple(path.name for path in [*damaged_parts, *damaged_shards]),
    )


def _parts(run: RunDirectory) -> tuple[dict[int, PartRecord], list[Location]]:
    """Return the parts that count, and the files of those that do not; the latter go."""
    records = run.part_records()
    trusted = {record.index: record for record in records if _is_trusted(run, record)}
    damaged = [record.index for record in records if record.index not in trusted]
    run.remove(run.record_path(index) for index in damaged)
    files = [run.part_path(index) for index in damaged]
    run.remove(files)
    return trusted, files


def _is_trusted(run: RunDirectory, record: PartRecord) -> bool:
    return run.row_stats_path(record.index).exists() and run.holds_part(record)


def _retried(
    run: RunDirectory, retry: Retry, parts: dict[int, PartRecord]
) -> dict[int, tuple[range, ...]]:
    return {
        index: retry.wanted_rows(run.read_arrow(run.row_stats_path(index)))
        for index, record in parts.items()
        if retry.num_wanted(record)
    }


def _remove_leftovers(
    run: RunDirectory,
    rule: CuttingRule,
    parts: dict[int, PartRecord],
    retried: dict[int, tuple[range, ...]],
) -> None:
    """Remove the shards of written parts: the driver was killed before it could."""
    done = [
        rows
        for rows in run.shard_ranges()
        if (index := rule.part_of(rows.start)) in parts and not holds(retried.get(index, ()), rows)
    ]
    run.remove(run.shard_path(rows) for rows in done)

"""How a part gets into its place: by one rename, what is known of it written ahead.

Record and statistics of a part stand beside those of the part that it replaces, if it replaces
one, until its file is in place; then they are promoted. A driver that is killed in between leaves
a file that matches one of the two records, which says what is left to do.
"""

from dataclasses import asdict

import pyarrow as pa

from .commit import commit_json, move_file, storage_errors
from .location import Location
from .manifest import PartRecord
from .run_directory import RunDirectory


def record_ahead(run: RunDirectory, record: PartRecord, statistics: pa.Table) -> None:
    """Commit what will be known of a part once its file is in place.

    Raises:
        JobStoppedError: the storage failed.
    """
    run.commit_arrow(_ahead(run.row_stats_path(record.index)), statistics)
    commit_json(_ahead(run.record_path(record.index)), asdict(record))


def promote(run: RunDirectory, index: int) -> None:
    """Make what was recorded ahead of a part what is known of it; from here on it is trusted.

    Raises:
        JobStoppedError: the storage failed.
    """
    with storage_errors(run.path):
        # The record last: without it nothing would tell that the statistics are still ahead.
        for path in (run.row_stats_path(index), run.record_path(index)):
            if _ahead(path).exists():
                move_file(_ahead(path), path)


def settle_parts(run: RunDirectory) -> None:
    """Promote what was recorded ahead of parts that are in place; remove the rest.

    Raises:
        JobStoppedError: the storage failed.
    """
    files = run.work_files("*.next")
    with storage_errors(run.path):
        records = [PartRecord.read(file) for file in files if file.name.endswith(".json.next")]
    for record in records:
        if record is not None and run.holds_part(record):
            promote(run, record.index)
    run.remove(files)


def _ahead(path: Location) -> Location:
    return path.parent / f"{path.name}.next"

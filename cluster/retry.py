"""A retry: the rows in error of a run that was finished, computed again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from worker.errors import ErrorKind

from .commit import commit_json, storage_errors
from .errors import JobConfigError, JobStoppedError
from .input_files import display
from .location import Location
from .manifest import PartRecord
from .row_ranges import consecutive
from .run_directory import RunDirectory

_FILE: Final = "retry.json"


@dataclass(frozen=True, slots=True)
class Retry:
    """Which rows of a run are wanted again: those that failed in a way that is named.

    It holds for a part until the part is written by this retry, and counts until the run is
    finished again.

    Attributes:
        number: 1 for the run's first retry, and so on; the parts that it writes bear it.
        kinds: the kinds of errors.
    """

    number: int
    kinds: frozenset[str]

    @classmethod
    def read(cls, run: RunDirectory) -> "Retry":
        """Return the retry that is under way in a run that is not finished, or NO_RETRY.

        Raises:
            JobStoppedError: the storage failed.
        """
        path = _path(run)
        with storage_errors(run.path):
            if not path.exists():
                return NO_RETRY
            content = path.read_bytes()
        try:
            document = json.loads(content)
            return cls(int(document["number"]), frozenset(document["kinds"]))
        except (ValueError, KeyError, TypeError) as error:
            raise JobStoppedError(
                f"{display(str(path))}: was committed and cannot be read ({error}); "
                "check the storage"
            ) from error

    def write(self, run: RunDirectory) -> None:
        """Commit it.

        Raises:
            JobStoppedError: the storage failed.
        """
        commit_json(_path(run), {"number": self.number, "kinds": sorted(self.kinds)})

    def num_wanted(self, record: PartRecord) -> int:
        """Return how many rows of a part are wanted again."""
        if record.retry >= self.number:
            return 0
        return sum(record.errors.get(kind, 0) for kind in self.kinds)

    def kept_errors(self, record: PartRecord) -> dict[str, int]:
        """Return the rows in error of a part that are not wanted again, by kind."""
        if not self.num_wanted(record):
            return record.errors
        return {kind: rows for kind, rows in record.errors.items() if kind not in self.kinds}

    def wanted_rows(self, statistics: pa.Table) -> tuple[range, ...]:
        """Return the rows of a part that are wanted again, from its rows' statistics."""
        kinds = pa.array(sorted(self.kinds), pa.string())
        chosen = statistics.filter(pc.is_in(statistics.column("error_kind"), kinds))
        return consecutive(chosen.column("row_id").to_numpy().astype(np.int64))


NO_RETRY: Final = Retry(0, frozenset())
"""Of a run that does its rows for the first time."""


def error_kinds(names: Iterable[str]) -> frozenset[ErrorKind]:
    """Return the kinds of errors that are named; all of them if none is.

    Raises:
        JobConfigError: a name is no kind; those that there are are named.
    """
    known = {str(kind): kind for kind in ErrorKind}
    for name in names:
        if name not in known:
            raise JobConfigError(
                f"--retry-errors: {name!r} is no kind of row error; there are {', '.join(known)}"
            )
    return frozenset(map(known.__getitem__, names)) or frozenset(ErrorKind)


def _path(run: RunDirectory) -> Location:
    return run.shards / _FILE

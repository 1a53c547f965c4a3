"""The manifest: what a run is, so that another run can tell whether it is the same one."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from .errors import JobConfigError
from .input_files import display
from .location import Location
from .plan import CuttingRule

NUMERICS_VERSION: Final = 2
"""Raised by a release whose tokens may differ from those of the release before."""

_FORMAT: Final = "tokenmill run"
_FORMAT_VERSION: Final = 1
_NOT_OURS: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRecord:
    """What is known of a written part; a part whose record does not match is not trusted.

    Attributes:
        index: its number, from 0.
        first_row: row id of its first row.
        num_rows: its rows.
        size: bytes of the file.
        sha256: of the file.
        errors: rows that failed, by kind of error.
        num_prompt_tokens: tokens of all prompts.
        num_generated_tokens: tokens of all completions.
        checksum: sum of the rows' token checksums, hexadecimal.
        retry: the retry that wrote it, from 1; 0 for the run itself.
    """

    index: int
    first_row: int
    num_rows: int
    size: int
    sha256: str
    errors: dict[str, int]
    num_prompt_tokens: int
    num_generated_tokens: int
    checksum: str
    retry: int = 0

    @property
    def rows(self) -> range:
        """Row ids."""
        return range(self.first_row, self.first_row + self.num_rows)

    @property
    def num_errors(self) -> int:
        """Rows that failed."""
        return sum(self.errors.values())

    @classmethod
    def read(cls, path: Location) -> "PartRecord | None":
        """Read a record; None if the file does not hold one."""
        try:
            return cls(**json.loads(path.read_bytes()))
        except (ValueError, TypeError):
            return None


def total_errors(records: Iterable[PartRecord]) -> dict[str, int]:
    """Return the rows of some parts that failed, by kind of error."""
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.errors)
    return dict(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Identity and shape of a run.

    Attributes:
        fingerprint: everything that can change a row, by name. No times, no release versions: a
            ``touch`` or a bug-fix release must not make it another run.
        inputs: the input files: path below the input root, size, footer SHA-256, rows.
        cutting: the rule that cuts rows into shards and parts.
        template_date: the date that chat templates see in all rows of the run.
        parts: their records, once the run is finished.
        drivers: how many drivers worked at it, once it is finished.
    """

    fingerprint: dict[str, Any]
    inputs: list[dict[str, Any]]
    cutting: CuttingRule
    template_date: str
    parts: list[PartRecord] = field(default_factory=list)
    drivers: int = 0

    @property
    def num_rows(self) -> int:
        """Rows of the input."""
        return sum(int(file["num_rows"]) for file in self.inputs)

    def finished(self, parts: list[PartRecord], drivers: int) -> "Manifest":
        """Return the manifest of the finished run."""
        return replace(self, parts=parts, drivers=drivers)

    def to_json(self) -> dict[str, Any]:
        """Return the document to write."""
        return {"format": _FORMAT, "format_version": _FORMAT_VERSION} | asdict(self)

    @classmethod
    def read(cls, path: Location) -> "Manifest":
        """Read a manifest.

        Raises:
            JobConfigError: the file is no manifest of tokenmill, or of a version that is not known.
        """
        try:
            document = json.loads(path.read_bytes())
            if document.pop("format") != _FORMAT:
                raise KeyError("format")
            version = document.pop("format_version")
        except _NOT_OURS as error:
            raise JobConfigError(
                f"{display(str(path))}: not a manifest of tokenmill ({error}); "
                "choose another output folder"
            ) from error
        if version != _FORMAT_VERSION:
            raise JobConfigError(
                f"{display(str(path))}: manifest version {version}, this tokenmill knows "
                f"{_FORMAT_VERSION}; choose another output folder, or use the release that wrote it"
            )
        try:
            document["cutting"] = CuttingRule(**document["cutting"])
            document["parts"] = [PartRecord(**record) for record in document["parts"]]
            return cls(**document)
        except (KeyError, TypeError) as error:
            raise JobConfigError(
                f"{display(str(path))}: the manifest is damaged ({error}); "
                "choose another output folder"
            ) from error

"""The input dataset: its files in row-id order, their checked footers and one schema."""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import pyarrow as pa

from .errors import JobConfigError
from .footer import Footer, RowGroup, read_footer, refuse_unsupported
from .input_columns import InputColumns
from .input_files import InputPath, display, find_input_files
from .location import Location
from .partition_columns import partition_values

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of the dataset.

    Attributes:
        path: where to open it.
        relative: its name below the input root.
        size: bytes.
        footer_sha256: of its Parquet footer.
        first_row: row id of its first row.
        row_groups: in file order.
        partitions: columns that its folders' names stand for and the file does not hold itself.
    """

    path: Location
    relative: str
    size: int
    footer_sha256: str
    first_row: int
    row_groups: tuple[RowGroup, ...]
    partitions: tuple[tuple[str, str | None], ...]

    @property
    def num_rows(self) -> int:
        """Rows of the file, by its footer."""
        return sum(group.num_rows for group in self.row_groups)


@dataclass(frozen=True, slots=True)
class InputDataset:
    """All input files, checked before the first row is read.

    A row's id is its position: files in bytewise order of their relative path, then row order.

    Attributes:
        files: in row-id order.
        schema: the user's columns, those of folder names last; carried through to the parts.
        columns: those that requests are read from.
    """

    files: tuple[InputFile, ...]
    schema: pa.Schema
    columns: InputColumns

    @classmethod
    def open(cls, source: str, columns: InputColumns) -> "InputDataset":
        """Find the files, read every footer and check the schemas against each other.

        Args:
            source: file, folder or glob pattern.
            columns: where the requests are.

        Raises:
            InputError: a file is missing, damaged, encrypted or no Parquet file.
            JobConfigError: columns are missing, of a wrong type, twice in a file, or differ
                between files.
        """
        files: list[InputFile] = []
        schema = pa.schema([])
        for found in find_input_files(source):
            footer = read_footer(found.path, str(found.path))
            used = columns.resolve(footer.schema, str(found.path))
            refuse_unsupported(found.path, used.names(), str(found.path))
            file, file_schema = _input_file(found, footer, files)
            if files:
                _check_same(schema, str(files[0].path), file_schema, str(file.path))
                schema = _nullable_where_either_is(schema, file_schema)
            else:
                schema = file_schema
            files.append(file)
        return cls(tuple(files), schema, used)

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return self.files[-1].first_row + self.files[-1].num_rows if self.files else 0

    def row_group_of(self, row_id: int) -> tuple[int, int]:
        """Return the index of the file that a row is in, and of the row group there.

        The row behind the last one is in the file behind the last one.
        """
        if row_id >= self.num_rows:
            return len(self.files), 0
        index = bisect_right(self.files, row_id, key=lambda file: file.first_row) - 1
        row = row_id - self.files[index].first_row
        ends = accumulate(group.num_rows for group in self.files[index].row_groups)
        return index, next(i for i, end in enumerate(ends) if row < end)

    @property
    def num_bytes(self) -> int:
        """Encoded, uncompressed bytes of all row groups, by the footers."""
        return sum(group.num_bytes for file in self.files for group in file.row_groups)


def _input_file(
    found: InputPath, footer: Footer, before: list[InputFile]
) -> tuple[InputFile, pa.Schema]:
    name = str(found.path)  # messages name the file as the user can open it
    _refuse_duplicates(footer.schema, name)
    partitions = tuple(
        (key, value)
        for key, value in partition_values(found.relative).items()
        if key not in footer.schema.names
    )
    file = InputFile(
        path=found.path,
        relative=found.relative,
        size=footer.size,
        footer_sha256=footer.sha256,
        first_row=before[-1].first_row + before[-1].num_rows if before else 0,
        row_groups=footer.row_groups,
        partitions=partitions,
    )
    own = [_user_field(field) for field in footer.schema]
    return file, pa.schema([*own, *(pa.field(key, pa.string()) for key, _ in partitions)])


def _user_field(field: pa.Field) -> pa.Field:
    """Keep the field's metadata (unknown extension types live there), not Parquet's numbering."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != _FIELD_ID}
    return field.with_metadata(metadata or None)


def _refuse_duplicates(schema: pa.Schema, file: str) -> None:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise JobConfigError(
            f"{display(file)}: more than one column is named {', '.join(twice)}; rename them, "
            "readers of the output could not tell them apart"
        )


def _check_same(first: pa.Schema, first_file: str, other: pa.Schema, other_file: str) -> None:
    """Refuse a file whose columns are not those of the first one; their order may differ."""
    first_file, other_file = display(first_file), display(other_file)
    for name in [*first.names, *(n for n in other.names if n not in first.names)]:
        if name not in first.names or name not in other.names:
            has, lacks = (
                (first_file, other_file) if name in first.names else (other_file, first_file)
            )
            raise JobConfigError(
                f"column {name} is in {has} and not in {lacks}; "
                "all input files need the same columns"
            )
        one, two = first.field(name).type, other.field(name).type
        if not one.equals(two):
            raise JobConfigError(
                f"column {name} is {one} in {first_file} and {two} in {other_file}; "
                "cast one of them, a column has one type in the output"
            )


def _nullable_where_either_is(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            field.with_nullable(field.nullable or other.field(field.name).nullable)
            for field in schema
        ]
    )

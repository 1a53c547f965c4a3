"""A cursor over the rows of consecutive tables."""

from collections.abc import Iterator

import pyarrow as pa


class TableCursor:
    """Gives the rows of tables one after the other, holding one table at a time.

    Args:
        tables: taken as they are needed.
        schema: of all of them.
    """

    def __init__(self, tables: Iterator[pa.Table], schema: pa.Schema) -> None:
        self._tables = tables
        self._rest = schema.empty_table()

    def read(self, num_rows: int) -> pa.Table:
        """Return the next rows, which must be there."""
        pieces = [self._rest.slice(0, num_rows)]
        missing = num_rows - pieces[0].num_rows
        self._rest = self._rest.slice(pieces[0].num_rows)
        while missing > 0:
            table = next(self._tables)
            pieces.append(table.slice(0, missing))
            self._rest = table.slice(missing)
            missing -= pieces[-1].num_rows
        return pa.concat_tables(pieces)

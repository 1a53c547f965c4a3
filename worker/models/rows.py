"""Values of a step's rows, in the form that whoever reads them wants."""

from collections.abc import Callable
from dataclasses import dataclass

from .workspace import Memory


@dataclass(frozen=True, slots=True)
class RowSet:
    """Which rows: all tokens of a step, or those that get logits.

    Attributes:
        capacity: most rows of a step.
        count_word: header word with their number.
        items_word: header word with the number of work items they are cut into.
        an_item_word: header word with the rows of an item.
    """

    capacity: int
    count_word: int
    items_word: int
    an_item_word: int


class Rows:
    """Rows as float32, as quantised records, or both.

    A form is recorded when it is first asked for, so that a step computes no form in vain.

    Attributes:
        width: values of a row.
        row_set: which rows they are.
    """

    width: int
    row_set: RowSet

    def __init__(
        self,
        width: int,
        row_set: RowSet,
        *,
        floats: Callable[[], Memory],
        records: Callable[[], Memory],
    ) -> None:
        """Say how either form is recorded.

        Args:
            width: values of a row.
            row_set: which rows.
            floats: records the float32 rows, and gives their place.
            records: records the quantised rows, and gives their place.
        """
        self.width = width
        self.row_set = row_set
        self._make_floats, self._make_records = floats, records
        self._floats: Memory | None = None
        self._records: Memory | None = None

    @property
    def floats(self) -> Memory:
        """The float32 rows."""
        if self._floats is None:
            self._floats = self._make_floats()
        return self._floats

    @property
    def records(self) -> Memory:
        """The quantised rows."""
        if self._records is None:
            self._records = self._make_records()
        return self._records

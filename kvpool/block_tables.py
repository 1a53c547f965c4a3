"""Block tables of one sequence, one a layer group."""

from collections.abc import Iterator, Sequence

from .block_keys import BlockKeys
from .block_table import BlockTable


class BlockTables:
    """Where one sequence's tokens lie, in the order of the layer groups; iterates over the tables.

    Attributes:
        keys: keys of the sequence's full blocks; they outlive the blocks.
        num_published: blocks, from the left, that were let into the prefix cache.
        state: the slot of the sequence's recurrent state; None where it has none.
        saved_state: the slot of a copy of it for forks, and the tokens it had taken in then.
    """

    def __init__(self, tables: Sequence[BlockTable], keys: BlockKeys) -> None:
        self.keys = keys
        self.num_published = 0
        self.state: int | None = None
        self.saved_state: tuple[int, int] | None = None
        self._tables = tuple(tables)

    def __iter__(self) -> Iterator[BlockTable]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, group: int) -> BlockTable:
        return self._tables[group]

    @property
    def is_empty(self) -> bool:
        """Whether the sequence holds no block and starts at position 0."""
        return all(table.num_columns == 0 for table in self._tables)

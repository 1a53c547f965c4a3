"""Block table: where one sequence's tokens lie in one layer group."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .ids import FREED, BlockId


class BlockTable:
    """Blocks of one sequence in one group; column j holds positions ``[j * size, (j + 1) * size)``.

    Columns are absolute: a column never moves, and gets another block only where a shared one is
    copied to be written. A window group gives blocks back from the left and leaves FREED in their
    place::

        positions   0   16   32   48   64
                    | -1 | -1 | 7  | 2  |
                              ^ first_held = 2
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.num_columns = 0
        self.first_held = 0
        self._columns = np.empty(4, np.int32)

    @property
    def blocks(self) -> NDArray[np.int32]:
        """int32 ``[num_columns]``, a view: block ids, FREED where one was given back."""
        return self._columns[: self.num_columns]

    @property
    def num_held(self) -> int:
        """How many blocks were not given back."""
        return self.num_columns - self.first_held

    @property
    def held(self) -> list[BlockId]:
        """The blocks not given back, by position."""
        return [BlockId(block) for block in self.blocks[self.first_held :].tolist()]

    def start_at(self, first_held: int) -> None:
        """Leave the first columns out: an empty table that holds nothing left of ``first_held``."""
        assert self.num_columns == 0, "only an empty table can start elsewhere"
        self.append([FREED] * first_held)
        self.first_held = first_held

    def missing(self, num_tokens: int) -> int:
        """Columns to append before the table covers ``num_tokens`` tokens."""
        return max(0, -(-num_tokens // self.block_size) - self.num_columns)

    def append(self, blocks: Sequence[BlockId]) -> None:
        """Add blocks on the right."""
        end = self.num_columns + len(blocks)
        if end > len(self._columns):
            grown = np.empty(max(end, 2 * len(self._columns)), np.int32)
            grown[: self.num_columns] = self.blocks
            self._columns = grown
        self._columns[self.num_columns : end] = blocks
        self.num_columns = end

    def block(self, column: int) -> BlockId:
        """The block of a column."""
        return BlockId(int(self._columns[column]))

    def replace(self, column: int, block: BlockId) -> None:
        """Put another block into a held column; the caller releases the one that was there."""
        assert self.first_held <= column < self.num_columns, (column, self.first_held)
        self._columns[column] = block

    def drop_before(self, position: int) -> list[BlockId]:
        """Forget the blocks that lie wholly before ``position``; the caller releases them."""
        end = min(position // self.block_size, self.num_columns)
        if end <= self.first_held:
            return []
        dropped = [BlockId(block) for block in self._columns[self.first_held : end].tolist()]
        self._columns[self.first_held : end] = FREED
        self.first_held = end
        return dropped

    def clear(self) -> list[BlockId]:
        """Forget all blocks, start anew at position 0; the caller releases them."""
        held = self.held
        self.num_columns = self.first_held = 0
        return held

    def check_invariants(self) -> None:
        """FREED stands exactly left of ``first_held``."""
        assert 0 <= self.first_held <= self.num_columns <= len(self._columns)
        assert (self.blocks[: self.first_held] == FREED).all(), "a given-back block is still here"
        assert (self.blocks[self.first_held :] >= 0).all(), "a held column has no block"

"""The pool over all layer groups: what the scheduler talks to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .block_pool import BlockPool
from .block_table import BlockTable
from .layer_group import LayerGroup
from .sizing import PoolLimits

BlockTables = tuple[BlockTable, ...]
"""A sequence's tables, one a layer group, in the order of the groups."""


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Blocks and bytes of all groups together.

    Attributes:
        used: blocks held now.
        total: blocks there are.
        peak: most blocks ever held, summed over the groups.
        peak_bytes: what those take.
        total_bytes: what all blocks take once each was written.
    """

    used: int
    total: int
    peak: int
    peak_bytes: int
    total_bytes: int


class KVPool:
    """Allocates blocks to sequences in all groups at once, or not at all.

    Attributes:
        groups: the layer groups.
        num_blocks: blocks of each group.
        block_size: tokens a block.
        max_sequence_tokens: most tokens a sequence can have, alone in the pool.
    """

    def __init__(
        self, groups: Sequence[LayerGroup], num_blocks: Sequence[int], limits: PoolLimits
    ) -> None:
        self.groups = tuple(groups)
        self.num_blocks = tuple(num_blocks)
        self.block_size = limits.block_size
        self.max_sequence_tokens = min(
            limits.longest_sequence(group.window, count)
            for group, count in zip(groups, num_blocks, strict=True)
        )
        self._pools = tuple(BlockPool(count) for count in num_blocks)
        self._block_bytes = tuple(limits.block_bytes(group) for group in groups)

    def new_tables(self) -> BlockTables:
        """Empty tables for a sequence."""
        return tuple(BlockTable(self.block_size) for _ in self.groups)

    def longest_chunk(self, next_position: int) -> int:
        """Most tokens from ``next_position`` on that a sequence alone can be extended by at once.

        A window group may hold a sequence of any length and yet be too small for its window and a
        whole step's tokens. At least 1 up to ``max_sequence_tokens``.
        """
        ends = [
            (_first_in_reach(group, next_position) // self.block_size + count) * self.block_size
            for group, count in zip(self.groups, self.num_blocks, strict=True)
        ]
        return min(ends) - next_position

    def allocate(self, tables: BlockTables, num_tokens: int) -> bool:
        """Extend the tables to cover ``num_tokens`` tokens in all; False changes nothing."""
        missing = [table.missing(num_tokens) for table in tables]
        if any(n > pool.num_free for n, pool in zip(missing, self._pools, strict=True)):
            return False
        for table, pool, count in zip(tables, self._pools, missing, strict=True):
            table.append(pool.take(count))
        return True

    def free_outside_window(self, tables: BlockTables, next_position: int) -> None:
        """Give back blocks that no token from ``next_position`` on attends to."""
        for group, table, pool in zip(self.groups, tables, self._pools, strict=True):
            for block in table.drop_before(_first_in_reach(group, next_position)):
                pool.release(block)

    def free(self, tables: BlockTables) -> None:
        """Give back all blocks of a sequence; its tables are empty afterwards."""
        for table, pool in zip(tables, self._pools, strict=True):
            # From the right, so that the next sequence gets them in the order of this one.
            for block in reversed(table.clear()):
                pool.release(block)

    @property
    def num_free(self) -> tuple[int, ...]:
        """Free blocks of each group."""
        return tuple(pool.num_free for pool in self._pools)

    @property
    def usage(self) -> PoolUsage:
        """How full the pool is and was."""
        bytes_per_block = self._block_bytes
        return PoolUsage(
            used=sum(pool.num_used for pool in self._pools),
            total=sum(pool.num_blocks for pool in self._pools),
            peak=sum(pool.peak_used for pool in self._pools),
            peak_bytes=sum(
                p.peak_used * n for p, n in zip(self._pools, bytes_per_block, strict=True)
            ),
            total_bytes=sum(
                p.num_blocks * n for p, n in zip(self._pools, bytes_per_block, strict=True)
            ),
        )

    def check_invariants(self, live: Iterable[BlockTables]) -> None:
        """Every held block is held by the live tables and by nothing else; for tests."""
        tables_by_group = list(zip(*live, strict=True)) or [() for _ in self._pools]
        for pool, tables in zip(self._pools, tables_by_group, strict=True):
            pool.check_invariants()
            for table in tables:
                table.check_invariants()
            held = Counter(block for table in tables for block in table.held)
            assert pool.num_used == len(held), "a block is held by no table"
            assert all(pool.references(block) == n for block, n in held.items()), "miscounted"


def _first_in_reach(group: LayerGroup, position: int) -> int:
    """The first position that a token at ``position`` attends to in a group."""
    return 0 if group.window is None else max(0, position - group.window + 1)

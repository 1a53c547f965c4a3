"""The pool over all layer groups: what the scheduler talks to."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .block_keys import BlockKey, BlockKeys
from .block_pool import BlockPool
from .block_table import BlockTable
from .block_tables import BlockTables
from .ids import BlockId
from .layer_group import LayerGroup
from .sizing import PoolLimits

CopyBlock = Callable[[int, BlockId, BlockId], None]
"""Copies a block's K/V within a layer group: (group index, source, target)."""

CopyState = Callable[[int, int], None]
"""Copies a recurrent state: (slot of the source, slot of the target)."""


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Blocks and bytes of all groups together.

    Attributes:
        used: blocks held now.
        idle: blocks held by nobody in which a prefix may be found.
        total: blocks there are.
        peak: most blocks held at a time when it was looked (``note_use``).
        peak_bytes: most bytes of blocks held at such a time.
        total_bytes: what all blocks take once each was written.
        evictions: idle blocks whose memory was needed.
    """

    used: int
    idle: int
    total: int
    peak: int
    peak_bytes: int
    total_bytes: int
    evictions: int


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """What fits into a pool.

    Attributes:
        tokens: of all sequences together; what lies behind a window takes no place.
        sequences: sequences of ``max_model_len`` tokens at a time.
        max_sequence_tokens: most tokens of a sequence.
        num_bytes: memory once every block was written.
    """

    tokens: int
    sequences: int
    max_sequence_tokens: int
    num_bytes: int

    def __str__(self) -> str:
        longest = f"{self.max_sequence_tokens:,} tokens"
        if self.sequences == 0:
            rows = f"no row of full length, at most {longest} a row"
        else:
            rows = f"{self.sequences:,} {'row' if self.sequences == 1 else 'rows'} of {longest}"
        return f"{self.tokens:,} tokens ({rows}), {self.num_bytes / 2**20:,.0f} MiB"


class KVPool:
    """Gives blocks to sequences in all groups at once, or not at all, and finds shared prefixes.

    A sequence's life in the pool::

        tables = pool.new_tables()
        cached = pool.longest_prefix(tables, token_ids)   # K/V that are there already
        pool.reuse(tables, cached)
        pool.allocate(tables, cached, end)                # room for tokens cached to end
        pool.publish(tables, token_ids, end)              # others may share what is full
        ...                                               # compute, allocate, publish, ...
        pool.free(tables)

    Attributes:
        groups: the layer groups.
        num_blocks: blocks of each group.
        block_size: tokens a block.
        max_sequence_tokens: most tokens a sequence can have, alone in the pool.
        prefix_caching: whether full blocks are shared and kept.
        num_states: recurrent states there are; 0 where layers have none.
    """

    def __init__(
        self,
        groups: Sequence[LayerGroup],
        num_blocks: Sequence[int],
        limits: PoolLimits,
        *,
        copy_block: CopyBlock | None = None,
        prefix_caching: bool = True,
        num_states: int = 0,
        num_saved_states: int = 0,
        copy_state: CopyState | None = None,
    ) -> None:
        """Make a pool in which all blocks are free.

        Args:
            groups: the layer groups.
            num_blocks: blocks of each group.
            limits: block size and the longest sequence.
            copy_block: copies K/V when a shared block is to be written; None where there are no
                arrays, as in tests of the bookkeeping.
            prefix_caching: whether `publish` lets blocks be found.
            num_states: recurrent states, one for each sequence that holds blocks; 0 for none. A
                state cannot be shared: it is what it is after its sequence's last token.
            num_saved_states: slots behind these, for copies that forks start from.
            copy_state: copies a state; None where there are no arrays.
        """
        assert not (num_states and prefix_caching), "a state cannot start with a prefix"
        self.groups = tuple(groups)
        self.num_blocks = tuple(num_blocks)
        self.block_size = limits.block_size
        self.max_sequence_tokens = min(
            limits.longest_sequence(group.window, count)
            for group, count in zip(groups, num_blocks, strict=True)
        )
        self.prefix_caching = prefix_caching
        self.num_states = num_states
        self._free_states = list(range(num_states))
        self._all_states = range(num_states + num_saved_states)
        self._free_saved_states = list(self._all_states[num_states:])
        self._copy_state = copy_state
        self._copy_block = copy_block
        self._limits = limits
        self._pools = tuple(BlockPool(count) for count in num_blocks)
        self._block_bytes = tuple(limits.block_bytes(group) for group in groups)
        self._peak_blocks = self._peak_bytes = 0

    def new_tables(self, root: bytes = b"") -> BlockTables:
        """Empty tables for a sequence, which shares blocks with those of the same root only."""
        return self._tables(BlockKeys(self.block_size, root))

    def room(self, tables: BlockTables, start: int, spare: Sequence[int] | None = None) -> int:
        """Most tokens from ``start`` on that can be written with the blocks that are free now.

        ``spare`` blocks of each group are left for others; None leaves none.

        What lies behind the window should be given back first. A sequence alone in the pool can
        write at least one token more, up to ``max_sequence_tokens`` in all; in a window group that
        is small, not many more at once. Below 1: none.
        """
        column = start // self.block_size
        ends = [
            table.num_columns + pool.num_free - left - _is_shared(table, pool, column)
            for table, pool, left in zip(
                tables, self._pools, spare or [0] * len(self.groups), strict=True
            )
        ]
        if any(end <= column for end in ends):
            return 0
        return min(ends) * self.block_size - start

    def longest_prefix(self, tables: BlockTables, token_ids: Sequence[int]) -> int:
        """Tokens at the start of ``token_ids`` whose K/V can be shared: whole blocks.

        The longest prefix that every group can serve: a full group needs all its blocks, a window
        group those that the token after it attends to. At least one token is left over, since
        logits come from computing one.

        Args:
            tables: the sequence's.
            token_ids: all its tokens.
        """
        if not self.prefix_caching:
            return 0
        keys = tables.keys.first(token_ids, max(0, len(token_ids) - 1) // self.block_size)
        for group, pool in zip(self.groups, self._pools, strict=True):
            if group.window is None:
                keys = keys[: pool.cache.leading(keys)]
        windows = [
            (group, _runs(pool, keys))
            for group, pool in zip(self.groups, self._pools, strict=True)
            if group.window is not None
        ]
        for count in range(len(keys), 0, -1):
            end = count * self.block_size
            if all(runs[count] >= count - self._first_column(g, end) for g, runs in windows):
                return end
        return 0

    def reuse(self, tables: BlockTables, num_tokens: int) -> None:
        """Share the blocks of a prefix that ``longest_prefix`` has just found; tables are empty."""
        assert tables.is_empty, "only a sequence without blocks can start with a prefix"
        count = num_tokens // self.block_size
        keys = tables.keys.first((), count)  # known since the prefix was looked for
        for group, table, pool in zip(self.groups, tables, self._pools, strict=True):
            first = self._first_column(group, num_tokens)
            table.start_at(first)
            table.append([_shared(pool, key) for key in keys[first:]])
        tables.num_published = count

    def allocate(self, tables: BlockTables, start: int, end: int) -> bool:
        """Make room to write the tokens from ``start`` up to ``end``; False changes nothing.

        Blocks that are missing are added, and a block that others see is replaced by a copy. A
        sequence that has no recurrent state yet gets a slot for one.
        """
        first = start // self.block_size
        takes = [
            (table.missing(end), _is_shared(table, pool, first))
            for table, pool in zip(tables, self._pools, strict=True)
        ]
        if any(n + c > pool.num_free for (n, c), pool in zip(takes, self._pools, strict=True)):
            return False
        for group, (missing, shared) in enumerate(takes):
            if shared:
                self._copy_on_write(group, tables[group], first)
            if missing:
                tables[group].append(self._pools[group].take(missing))
        if self.num_states and tables.state is None:
            assert self._free_states, f"more than {self.num_states} sequences hold blocks"
            tables.state = self._free_states.pop()
        return True

    def publish(self, tables: BlockTables, token_ids: Sequence[int], num_tokens: int) -> None:
        """Let others share the full blocks among the first ``num_tokens`` tokens.

        Their K/V must be written before any other sequence attends to them; a sequence that
        joins the same step does so after all K/V of the step are written, layer by layer.
        """
        full, done = num_tokens // self.block_size, tables.num_published
        if not self.prefix_caching or full <= done:
            return
        keys = tables.keys.first(token_ids, full)[done:]
        for table, pool in zip(tables, self._pools, strict=True):
            # A window may have passed the first of them already.
            left = max(done, table.first_held)
            blocks = table.blocks[left:full].tolist()
            for block, key in zip(blocks, keys[left - done :], strict=True):
                pool.publish(block, key)
        tables.num_published = full

    def fork(self, parent: BlockTables, num_tokens: int) -> BlockTables | None:
        """Tables of a sequence that shares the parent's first ``num_tokens`` computed tokens.

        Whoever first writes into a block that both have gets a copy (``allocate``). None where the
        parent's window has moved on past what the fork's next token attends to, or its recurrent
        state past the token before that without being saved.
        """
        if self.num_states and num_tokens > 0 and not _has_saved(parent, num_tokens):
            return None
        columns = -(-num_tokens // self.block_size)
        firsts = [self._first_column(group, num_tokens) for group in self.groups]
        if any(t.first_held > first for t, first in zip(parent, firsts, strict=True)):
            return None
        full = num_tokens // self.block_size
        fork = self._tables(parent.keys.fork(full))
        fork.num_published = min(full, parent.num_published)
        for first, ours, theirs, pool in zip(firsts, fork, parent, self._pools, strict=True):
            blocks = [BlockId(block) for block in theirs.blocks[first:columns].tolist()]
            for block in blocks:
                pool.retain(block)
            ours.start_at(first)
            ours.append(blocks)
        self._fork_state(parent, fork)
        return fork

    def save_state(self, tables: BlockTables, num_tokens: int) -> None:
        """Keep a copy of a sequence's recurrent state for forks, if there is a slot for it.

        Args:
            tables: the sequence's.
            num_tokens: that the state has taken in.
        """
        if not _has_saved(tables, num_tokens) and self._free_saved_states:
            assert tables.state is not None, "a sequence without a state"
            self.drop_saved_state(tables)
            slot = self._free_saved_states.pop()
            tables.saved_state = slot, num_tokens
            self._copy(tables.state, slot)

    def drop_saved_state(self, tables: BlockTables) -> None:
        """Give back the copy of a sequence's state, if it has one."""
        if tables.saved_state is not None:
            self._free_saved_states.append(tables.saved_state[0])
            tables.saved_state = None

    def free_outside_window(self, tables: BlockTables, next_position: int) -> None:
        """Give back blocks that no token from ``next_position`` on attends to."""
        for group, table, pool in zip(self.groups, tables, self._pools, strict=True):
            for block in table.drop_before(_first_in_reach(group, next_position)):
                pool.release(block)

    def free(self, tables: BlockTables) -> None:
        """Give back all blocks of a sequence; its tables are empty afterwards."""
        for table, pool in zip(tables, self._pools, strict=True):
            # From the right: the tail of a prefix is evicted before what others can use without it,
            # and the next sequence gets blocks in the order of this one.
            for block in reversed(table.clear()):
                pool.release(block)
        tables.num_published = 0
        if tables.state is not None:
            self._free_states.append(tables.state)
            tables.state = None
        self.drop_saved_state(tables)

    def ahead(self, tables: BlockTables, start: int, end: int) -> tuple[int, ...]:
        """Blocks of each group that a sequence takes to write the tokens from ``start`` to ``end``.

        In a window group it gives blocks back on the way, so it takes no more than its window.
        """
        column = start // self.block_size
        most = (self._limits.row_blocks(group.window) for group in self.groups)
        return tuple(
            max(0, min(table.missing(end), blocks - table.num_held))
            + _is_shared(table, pool, column)
            for blocks, table, pool in zip(most, tables, self._pools, strict=True)
        )

    @property
    def capacity(self) -> PoolCapacity:
        """What fits."""
        rows = [self._limits.row_blocks(group.window) for group in self.groups]
        full = [
            count
            for group, count in zip(self.groups, self.num_blocks, strict=True)
            if group.window is None
        ]
        return PoolCapacity(
            tokens=min(full or self.num_blocks) * self.block_size,
            sequences=min(n // row for n, row in zip(self.num_blocks, rows, strict=True)),
            max_sequence_tokens=self.max_sequence_tokens,
            num_bytes=self.usage.total_bytes,
        )

    @property
    def num_free(self) -> tuple[int, ...]:
        """Blocks of each group that can be taken, idle ones among them."""
        return tuple(pool.num_free for pool in self._pools)

    def note_use(self) -> None:
        """Remember how many blocks are held now, if they are more than ever before."""
        used = [pool.num_used for pool in self._pools]
        num_bytes = sum(n * size for n, size in zip(used, self._block_bytes, strict=True))
        self._peak_blocks = max(self._peak_blocks, sum(used))
        self._peak_bytes = max(self._peak_bytes, num_bytes)

    @property
    def usage(self) -> PoolUsage:
        """How full the pool is and was."""
        sizes = list(zip(self._pools, self._block_bytes, strict=True))
        return PoolUsage(
            used=sum(pool.num_used for pool in self._pools),
            idle=sum(pool.cache.num_idle for pool in self._pools),
            total=sum(self.num_blocks),
            peak=self._peak_blocks,
            peak_bytes=self._peak_bytes,
            total_bytes=sum(pool.num_blocks * size for pool, size in sizes),
            evictions=sum(pool.cache.num_evictions for pool in self._pools),
        )

    def check_invariants(self, live: Iterable[BlockTables]) -> None:
        """Every held block is held by the live tables and by nothing else; for tests."""
        live = list(live)
        states = [tables.state for tables in live if tables.state is not None]
        states += [tables.saved_state[0] for tables in live if tables.saved_state is not None]
        states += self._free_states + self._free_saved_states
        assert sorted(states) == list(self._all_states), "a lost state"
        tables_by_group = list(zip(*live, strict=True)) or [() for _ in self._pools]
        for pool, tables in zip(self._pools, tables_by_group, strict=True):
            pool.check_invariants()
            for table in tables:
                table.check_invariants()
            held = Counter(block for table in tables for block in table.held)
            assert pool.num_used == len(held), "a block is held by no table"
            assert all(pool.references(block) == n for block, n in held.items()), "miscounted"

    def _tables(self, keys: BlockKeys) -> BlockTables:
        return BlockTables([BlockTable(self.block_size) for _ in self.groups], keys)

    def _first_column(self, group: LayerGroup, position: int) -> int:
        """The column of the first position that a token at ``position`` attends to."""
        return _first_in_reach(group, position) // self.block_size

    def _fork_state(self, parent: BlockTables, fork: BlockTables) -> None:
        """Give a fork a state of its own: a copy of the one saved, or any to begin anew with."""
        if self.num_states:
            fork.state = self._free_states.pop()
            if parent.saved_state is not None:
                self._copy(parent.saved_state[0], fork.state)

    def _copy(self, source: int, target: int) -> None:
        if self._copy_state is not None:
            self._copy_state(source, target)

    def _copy_on_write(self, group: int, table: BlockTable, column: int) -> None:
        """Give a sequence its own copy of a block it shares."""
        pool, shared = self._pools[group], table.block(column)
        (own,) = pool.take(1)
        if self._copy_block is not None:
            self._copy_block(group, shared, own)
        table.replace(column, own)
        pool.release(shared)


def _first_in_reach(group: LayerGroup, position: int) -> int:
    """The first position that a token at ``position`` attends to in a group."""
    return 0 if group.window is None else max(0, position - group.window + 1)


def _has_saved(tables: BlockTables, num_tokens: int) -> bool:
    """Whether there is a copy of the recurrent state after so many tokens."""
    return tables.saved_state is not None and tables.saved_state[1] == num_tokens


def _is_shared(table: BlockTable, pool: BlockPool, column: int) -> bool:
    """Whether a column holds a block that must not be written."""
    return column < table.num_columns and not pool.is_writable(table.block(column))


def _runs(pool: BlockPool, keys: Sequence[BlockKey]) -> list[int]:
    """At j: how many blocks in a row, up to block j - 1, are in the cache."""
    runs = [0]
    for key in keys:
        runs.append(0 if pool.cache.find(key) is None else runs[-1] + 1)
    return runs


def _shared(pool: BlockPool, key: BlockKey) -> BlockId:
    """The block of a key that was found a moment ago, with one more reference."""
    block = pool.cache.find(key)
    assert block is not None, "a block of the prefix is gone"
    pool.retain(block)
    return block

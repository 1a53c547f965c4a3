"""How many blocks each layer group gets, and whether this machine can hold them."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .available_memory import available_memory
from .errors import PoolSizeError
from .layer_group import LayerGroup

DEFAULT_POOL_BYTES = 1 << 30
"""1 GiB: a laptop of 8 GiB holds it beside a small model twice over. It is no share of the
machine's memory on purpose: whether a row fits must not depend on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """What a pool's size follows from.

    Attributes:
        block_size: tokens a block.
        max_num_seqs: most sequences that hold blocks at the same time.
        max_num_batched_tokens: most tokens a step adds, over all sequences.
        max_model_len: most tokens of one sequence.
        itemsize: bytes of a number in the K/V arrays.
    """

    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    itemsize: int = 4

    def block_bytes(self, group: LayerGroup) -> int:
        """Bytes of a block of a group."""
        return group.block_bytes(self.block_size, self.itemsize)

    @property
    def most_useful_blocks(self) -> int:
        """Blocks of a full-attention group when every sequence is as long as can be."""
        return self.max_num_seqs * self.blocks_for(self.max_model_len)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold ``num_tokens`` tokens of one sequence."""
        return -(-num_tokens // self.block_size)

    def row_blocks(self, window: int | None) -> int:
        """Blocks that a sequence of ``max_model_len`` tokens cannot do without in a group.

        In a window group it can go on, a token at a time, with the blocks that the ``window``
        tokens up to the newest touch, wherever the borders fall.
        """
        longest = self.blocks_for(self.max_model_len)
        return longest if window is None else min(longest, self.blocks_for(window - 1) + 1)

    def window_blocks(self, window: int) -> int:
        """Most blocks that all sequences together can hold in a group with this window.

        Before a chunk of c tokens, a sequence keeps the ``window - 1`` tokens before it: at
        most ``blocks_for(window - 1) + 1 + blocks_for(c)`` blocks, wherever the borders fall.
        """
        chunks = self.max_num_batched_tokens // self.block_size + self.max_num_seqs
        return self.max_num_seqs * (self.blocks_for(window - 1) + 1) + chunks

    def longest_sequence(self, window: int | None, num_blocks: int) -> int:
        """Most tokens a sequence can reach alone in a group of ``num_blocks`` blocks."""
        if num_blocks >= self.row_blocks(window):
            return self.max_model_len
        return num_blocks * self.block_size


def blocks_from_tokens(
    groups: Sequence[LayerGroup], num_tokens: int, limits: PoolLimits
) -> tuple[int, ...]:
    """Blocks of each group for a pool of ``num_tokens`` tokens, rounded up to whole blocks."""
    return _blocks(groups, limits.blocks_for(num_tokens), limits)


def blocks_from_bytes(
    groups: Sequence[LayerGroup], budget: int, limits: PoolLimits
) -> tuple[int, ...]:
    """Blocks of each group for the largest pool within ``budget`` bytes.

    What one sequence of ``max_model_len`` tokens needs comes first, or as much of it as the budget
    holds: so the longest sequence follows from the budget alone, not from how many sequences or
    tokens a step may have. The rest is spread evenly over the groups.

    Raises:
        PoolSizeError: not one block of each group fits.
    """
    block_bytes = [limits.block_bytes(group) for group in groups]
    if sum(block_bytes) > budget:
        raise PoolSizeError(
            f"kv_pool_bytes: {budget} bytes hold not even one block of {limits.block_size} tokens, "
            f"which takes {sum(block_bytes)} bytes; raise kv_pool_bytes or lower block_size"
        )

    def largest(most: int, blocks: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """The largest ``blocks(n)``, n up to ``most``, within the budget."""

        def size(n: int) -> int:
            return pool_bytes(groups, blocks(n), limits)

        return blocks(bisect_right(range(most + 1), budget, key=size) - 1)

    one_row = largest(limits.blocks_for(limits.max_model_len), partial(_row_blocks, groups, limits))

    def more(n: int) -> tuple[int, ...]:
        return tuple(map(max, one_row, _blocks(groups, n, limits)))

    return largest(budget // min(block_bytes), more)


def useful_blocks(
    groups: Sequence[LayerGroup], limits: PoolLimits, budget: int = DEFAULT_POOL_BYTES
) -> tuple[int, ...]:
    """As many blocks as the limits can use, within ``budget`` bytes.

    Raises:
        PoolSizeError: not one block of each group fits.
    """
    wanted = _blocks(groups, limits.most_useful_blocks, limits)
    if pool_bytes(groups, wanted, limits) <= budget:
        return wanted
    return blocks_from_bytes(groups, budget, limits)


def blocks_from_share(
    groups: Sequence[LayerGroup], share: float, limits: PoolLimits, available: int | None = None
) -> tuple[int, ...]:
    """As many blocks as the limits can use, within a share of the memory that is free now.

    Args:
        groups: the layer groups.
        share: above 0, up to 1.
        limits: of the pool.
        available: bytes that are free; None asks the machine.

    Raises:
        PoolSizeError: the share does not hold one sequence of ``max_model_len`` tokens. A smaller
            pool would make it depend on the machine's free memory whether a row fits.
    """
    available = available_memory() if available is None else available
    budget = int(share * available)
    needed = pool_bytes(groups, one_row_blocks(groups, limits), limits)
    if needed > budget:
        raise PoolSizeError(
            f"kv_pool_share: {share:g} of the {available} bytes available are {budget}, and a row "
            f"of max_model_len {limits.max_model_len} tokens takes {needed}; lower max_model_len, "
            "raise kv_pool_share or free memory"
        )
    return useful_blocks(groups, limits, budget)


def one_row_blocks(groups: Sequence[LayerGroup], limits: PoolLimits) -> tuple[int, ...]:
    """Blocks of each group that one sequence of ``max_model_len`` tokens cannot do without."""
    return _row_blocks(groups, limits, limits.blocks_for(limits.max_model_len))


def most_tokens(groups: Sequence[LayerGroup], budget: int, limits: PoolLimits) -> int:
    """The largest size in tokens, in whole blocks, of a pool within ``budget`` bytes; may be 0."""

    def size(blocks: int) -> int:
        return pool_bytes(groups, _blocks(groups, blocks, limits), limits)

    block_bytes = min(limits.block_bytes(group) for group in groups)
    blocks = bisect_right(range(budget // block_bytes + 1), budget, key=size) - 1
    return blocks * limits.block_size


def pool_bytes(groups: Sequence[LayerGroup], num_blocks: Sequence[int], limits: PoolLimits) -> int:
    """Bytes of the K/V arrays of such a pool."""
    return sum(n * limits.block_bytes(group) for group, n in zip(groups, num_blocks, strict=True))


def check_memory(
    needed: int, setting: str, largest: Callable[[int], int], available: int | None = None
) -> None:
    """Refuse a pool that this machine cannot hold now.

    Args:
        needed: bytes of the pool once every block was written.
        setting: the setting to lower, for the message.
        largest: gives the largest value of that setting within so many bytes.
        available: bytes to compare with; None asks the machine.

    Raises:
        PoolSizeError: there is less memory than that.
    """
    available = available_memory() if available is None else available
    if needed > available:
        raise PoolSizeError(
            f"{setting}: the KV pool needs {needed} bytes, this machine has {available} bytes "
            f"available; lower {setting} to at most {largest(available)} or free memory"
        )


def _row_blocks(groups: Sequence[LayerGroup], limits: PoolLimits, count: int) -> tuple[int, ...]:
    """Blocks that one sequence of ``count`` blocks cannot do without."""
    return tuple(min(count, limits.row_blocks(group.window)) for group in groups)


def _blocks(groups: Sequence[LayerGroup], full_blocks: int, limits: PoolLimits) -> tuple[int, ...]:
    """``full_blocks`` a group; a window group no more than it can use."""
    return tuple(
        full_blocks
        if group.window is None
        else min(full_blocks, limits.window_blocks(group.window))
        for group in groups
    )

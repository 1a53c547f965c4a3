"""Block pool of one layer group: which blocks are free and who holds the others."""

from .ids import BlockId


class BlockPool:
    """Hands out the blocks of one group and counts their references.

    Every operation costs as much as the blocks it names, whatever the size of the pool. The block
    given back last is handed out first: its memory is in cache, and memory that was never needed
    is never touched. (A block that a prefix index still knew would wait its turn in
    least-recently-used order instead; ``release`` is where the two ways part.)
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.peak_used = 0
        self._given_back: list[BlockId] = []
        self._num_touched = 0  # blocks from here on were never handed out
        self._references: dict[BlockId, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._given_back) + self.num_blocks - self._num_touched

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return len(self._references)

    def take(self, count: int) -> list[BlockId]:
        """Take ``count`` free blocks, one reference each; the caller has checked ``num_free``."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        blocks = [self._given_back.pop() for _ in range(min(count, len(self._given_back)))]
        first, self._num_touched = self._num_touched, self._num_touched + count - len(blocks)
        blocks += [BlockId(block) for block in range(first, self._num_touched)]
        self._references.update(dict.fromkeys(blocks, 1))
        self.peak_used = max(self.peak_used, self.num_used)
        return blocks

    def retain(self, block: BlockId) -> None:
        """Add a reference to a block that somebody holds already."""
        self._references[block] += 1

    def release(self, block: BlockId) -> None:
        """Drop one reference; with the last one the block is free again."""
        self._references[block] -= 1
        if not self._references[block]:
            del self._references[block]
            self._given_back.append(block)

    def references(self, block: BlockId) -> int:
        """How many hold the block; 0 for a free one."""
        return self._references.get(block, 0)

    def check_invariants(self) -> None:
        """Each block is either free, once, or held; for tests."""
        free = set(self._given_back)
        assert len(free) == len(self._given_back), "a block is free twice"
        assert not free & self._references.keys(), "a held block is free"
        assert free | self._references.keys() == set(range(self._num_touched)), "a block was lost"
        assert all(count > 0 for count in self._references.values()), "held by nobody"
        assert self.num_used <= self.peak_used <= self.num_blocks, "peak below use"

"""Block pool of one layer group: which blocks are free and who holds the others."""

from .block_keys import BlockKey
from .ids import BlockId
from .prefix_cache import PrefixCache


class BlockPool:
    """Hands out the blocks of one group, counts their references, remembers what is in them.

    Every operation costs as much as the blocks it names, whatever the size of the pool. A free
    block is one of three::

        given back   nothing worth keeping in it; the one given back last is taken first: its
                     memory is in the processor's cache
        untouched    never handed out, so its memory was never asked of the system; taken next
        idle         a prefix may still be found in it (`PrefixCache`); taken last, the least
                     recently used first

    A block in the prefix cache is never written again, also while somebody holds it.

    Attributes:
        num_blocks: blocks there are.
        cache: the blocks that can be found by their tokens.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.cache = PrefixCache()
        self._given_back: list[BlockId] = []
        self._num_touched = 0  # blocks from here on were never handed out
        self._references: dict[BlockId, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return self.num_blocks - len(self._references)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return len(self._references)

    def take(self, count: int) -> list[BlockId]:
        """Take ``count`` free blocks, one reference each; the caller has checked ``num_free``."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        blocks = [self._given_back.pop() for _ in range(min(count, len(self._given_back)))]
        first = self._num_touched
        self._num_touched = min(self.num_blocks, first + count - len(blocks))
        blocks += [BlockId(block) for block in range(first, self._num_touched)]
        blocks += [self.cache.evict() for _ in range(count - len(blocks))]
        self._references.update(dict.fromkeys(blocks, 1))
        return blocks

    def retain(self, block: BlockId) -> None:
        """Add a reference to a block that is held or idle."""
        held = self._references.get(block, 0)
        if not held:
            self.cache.hold(block)
        self._references[block] = held + 1

    def release(self, block: BlockId) -> None:
        """Drop one reference; with the last one the block is free, idle if it has a key."""
        self._references[block] -= 1
        if not self._references[block]:
            del self._references[block]
            if block in self.cache:
                self.cache.leave(block)
            else:
                self._given_back.append(block)

    def publish(self, block: BlockId, key: BlockKey) -> None:
        """Let a held, full block be found by its tokens; it is not written any more."""
        assert block in self._references, f"block {block} is held by nobody"
        if block not in self.cache:
            self.cache.add(block, key)

    def is_writable(self, block: BlockId) -> bool:
        """Whether a holder may write: nobody else sees the block."""
        return self._references[block] == 1 and block not in self.cache

    def references(self, block: BlockId) -> int:
        """How many hold the block; 0 for a free one."""
        return self._references.get(block, 0)

    def check_invariants(self) -> None:
        """Each block is held, or free in one of the three ways; for tests."""
        self.cache.check_invariants()
        given_back, held = set(self._given_back), self._references.keys()
        touched = set(range(self._num_touched))
        assert len(given_back) == len(self._given_back), "a block is free twice"
        assert not given_back & held, "a held block is free"
        idle = touched - given_back - held
        assert len(idle) == self.cache.num_idle, "a block was lost"
        assert all(self.cache.is_idle(BlockId(block)) for block in idle), "a block was lost"
        assert all(block not in self.cache for block in given_back), "a blank block has a key"
        assert all(count > 0 for count in self._references.values()), "held by nobody"

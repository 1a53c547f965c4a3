"""Prefix cache of one layer group: which block holds which tokens."""

from collections import OrderedDict
from collections.abc import Sequence

from .block_keys import BlockKey
from .ids import BlockId


class PrefixCache:
    """Full blocks by their keys, and the order in which those that nobody holds are given up.

    At most one block a key and one key a block, so the index is never larger than the pool. A block
    is *idle* when no sequence holds it: its K/V stay until its memory is needed, the least recently
    used first. Used means: found, and held by somebody since.
    """

    def __init__(self) -> None:
        self.num_evictions = 0
        self._blocks: dict[bytes, BlockId] = {}
        self._keys: dict[BlockId, BlockKey] = {}
        self._idle: OrderedDict[BlockId, None] = OrderedDict()

    def __contains__(self, block: BlockId) -> bool:
        return block in self._keys

    @property
    def num_idle(self) -> int:
        """Blocks that can be evicted."""
        return len(self._idle)

    def find(self, key: BlockKey) -> BlockId | None:
        """The block with these tokens after that history."""
        block = self._blocks.get(key.digest)
        # The digest alone would do; that the tokens are compared costs next to nothing.
        return block if block is not None and self._keys[block].tokens == key.tokens else None

    def leading(self, keys: Sequence[BlockKey]) -> int:
        """How many of the keys, from the left up to the first that has none, have a block."""
        for count, key in enumerate(keys):
            if self.find(key) is None:
                return count
        return len(keys)

    def add(self, block: BlockId, key: BlockKey) -> None:
        """Index a held block under a key; a block that came first with that key stays the one."""
        assert block not in self._keys, f"block {block} has a key already"
        if key.digest not in self._blocks:
            self._blocks[key.digest] = block
            self._keys[block] = key

    def leave(self, block: BlockId) -> None:
        """The last holder let go of a block: it is idle, and the most recently used."""
        self._idle[block] = None

    def hold(self, block: BlockId) -> None:
        """Somebody holds an idle block."""
        del self._idle[block]

    def is_idle(self, block: BlockId) -> bool:
        """Whether the block is indexed and held by nobody."""
        return block in self._idle

    def evict(self) -> BlockId:
        """Forget the idle block used least recently; its memory is the caller's."""
        block, _ = self._idle.popitem(last=False)
        del self._blocks[self._keys.pop(block).digest]
        self.num_evictions += 1
        return block

    def check_invariants(self) -> None:
        """Index and keys are each other's inverse, and only indexed blocks are idle; for tests."""
        inverse = {block: digest for digest, block in self._blocks.items()}
        assert inverse == {block: key.digest for block, key in self._keys.items()}, "index torn"
        assert self._idle.keys() <= self._keys.keys(), "an idle block has no key"

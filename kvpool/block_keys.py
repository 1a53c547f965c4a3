"""Keys of full blocks: a hash chain over token ids."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

_DIGEST_BYTES = 16


class BlockKey(NamedTuple):
    """What a full block holds: its tokens, after all the tokens before it.

    Attributes:
        digest: hash of this block's tokens and of the digest of the block before it.
        tokens: this block's token ids, little-endian int32.
    """

    digest: bytes
    tokens: bytes


class BlockKeys:
    """Keys of one sequence's full blocks; each block is hashed once.

    A key stands for a whole history, since it chains::

        key j = hash(key j - 1, tokens of block j)

    so equal keys mean equal tokens at equal positions from the first token on, which is all that
    K/V depend on besides the ``root``. The hash is BLAKE2b of 128 bits: strangers write prompts,
    and must not be able to make two histories meet.
    """

    def __init__(self, block_size: int, root: bytes = b"") -> None:
        """Start a chain.

        Args:
            block_size: tokens of a block.
            root: what else K/V depend on; chains with different roots have no key in common.
        """
        self.block_size = block_size
        self._root = root
        self._keys: list[BlockKey] = []

    def first(self, token_ids: Sequence[int], count: int) -> list[BlockKey]:
        """Keys of the first ``count`` blocks.

        Args:
            token_ids: the sequence's tokens, at least ``count`` blocks of them; those of earlier
                calls may not have changed.
            count: blocks wanted.
        """
        known, size = len(self._keys), self.block_size
        if count > known:
            new = np.array(token_ids[known * size : count * size], "<i4").tobytes()
            assert len(new) == 4 * size * (count - known), "not that many full blocks"
            digest = self._keys[-1].digest if known else self._root
            for start in range(0, len(new), 4 * size):
                tokens = new[start : start + 4 * size]
                digest = blake2b(digest + tokens, digest_size=_DIGEST_BYTES).digest()
                self._keys.append(BlockKey(digest, tokens))
        return self._keys[:count]

    def fork(self, count: int) -> "BlockKeys":
        """Keys of a sequence that shares the first ``count`` blocks, or those known of them."""
        fork = BlockKeys(self.block_size, self._root)
        fork._keys = self._keys[:count]
        return fork

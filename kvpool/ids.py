"""Integer identities of the pool, kept apart by the type checker."""

from typing import NewType

BlockId = NewType("BlockId", int)
"""A block's index in the arrays of its layer group, from 0."""

FREED = BlockId(-1)
"""Stands in a block table where a window group has given a block back."""

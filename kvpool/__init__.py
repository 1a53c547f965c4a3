"""The KV block pool: blocks, block tables and K/V arrays.

Knows token ids and ints, never a Sequence.
"""

from .ids import FREED, BlockId, SlotId
from .kv_cache import KVCache
from .layer_group import LayerGroup

__all__ = ["FREED", "BlockId", "KVCache", "LayerGroup", "SlotId"]

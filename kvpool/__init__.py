"""The KV block pool: blocks, block tables and K/V arrays.

Knows token ids and ints, never a Sequence.
"""

from .block_table import BlockTable
from .errors import KVPoolError, PoolSizeError
from .ids import FREED, BlockId, SlotId
from .kv_cache import KVCache, KVDtype
from .layer_group import LayerGroup
from .pool import BlockTables, KVPool, PoolUsage
from .sizing import PoolLimits

__all__ = [
    "FREED",
    "BlockId",
    "BlockTable",
    "BlockTables",
    "KVCache",
    "KVDtype",
    "KVPool",
    "KVPoolError",
    "LayerGroup",
    "PoolLimits",
    "PoolSizeError",
    "PoolUsage",
    "SlotId",
]

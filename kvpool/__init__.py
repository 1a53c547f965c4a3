"""The KV block pool: blocks, block tables, the prefix cache and K/V arrays.

Knows token ids and ints, never a Sequence; docs/kvpool.md shows how it is used.
"""

from .block_keys import BlockKey, BlockKeys
from .block_table import BlockTable
from .block_tables import BlockTables
from .errors import KVPoolError, PoolSizeError
from .ids import FREED, BlockId
from .kv_cache import KVCache, KVDtype
from .layer_group import LayerGroup
from .pool import KVPool, PoolCapacity, PoolUsage
from .recurrent_state import StateCache, StateShape
from .sizing import PoolLimits

__all__ = [
    "FREED",
    "BlockId",
    "BlockKey",
    "BlockKeys",
    "BlockTable",
    "BlockTables",
    "KVCache",
    "KVDtype",
    "KVPool",
    "KVPoolError",
    "LayerGroup",
    "PoolCapacity",
    "PoolLimits",
    "PoolSizeError",
    "PoolUsage",
    "StateCache",
    "StateShape",
]

"""The KV block pool: blocks, block tables and K/V arrays. Knows token ids and ints, never a Sequence."""

"""A batch at fixed places: what the tasks of a recorded step read of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvpool import LayerGroup
from worker.kernels.attention import ITEM_WORDS
from worker.kernels.attention_items import attention_items, most_attention_items

from .batch import Batch

# Words of the header; each layer group has GROUP_WORDS more, from FIRST_GROUP on.
TOKENS, TOKENS_AN_ITEM, TOKEN_ITEMS = 0, 1, 2
LOGIT_ROWS, LOGITS_AN_ITEM, LOGIT_ITEMS = 3, 4, 5
PAIRS, PAIRS_AN_ITEM, PAIR_ITEMS, ACTIVE_EXPERTS = 6, 7, 8, 9
SEQUENCES = 10
FIRST_GROUP, GROUP_WORDS = 11, 2
_ATTENTION_ITEMS, _TABLE_STRIDE = 0, 1

_ITEMS_A_THREAD = 4  # of rows, where there are enough


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a recorded step has room for.

    Attributes:
        tokens: T.
        logit_rows: R.
        sequences: S.
        columns: of a block table.
    """

    tokens: int
    logit_rows: int
    sequences: int
    columns: int

    @classmethod
    def of(cls, batch: Batch) -> "Capacity":
        """Room for a batch and nothing more."""
        columns = max(table.shape[1] for table in batch.block_tables)
        return cls(batch.num_tokens, len(batch.logit_rows), batch.num_sequences, columns)

    def holds(self, other: "Capacity") -> bool:
        """Whether there is room for another."""
        return (
            other.tokens <= self.tokens
            and other.logit_rows <= self.logit_rows
            and other.sequences <= self.sequences
            and other.columns <= self.columns
        )

    def grown(self, other: "Capacity") -> "Capacity":
        """Room for both, what grows at least doubled, so that growing is rare."""

        def size(mine: int, needed: int) -> int:
            return mine if needed <= mine else max(needed, 2 * mine)

        return Capacity(
            size(self.tokens, other.tokens),
            size(self.logit_rows, other.logit_rows),
            size(self.sequences, other.sequences),
            size(self.columns, other.columns),
        )


def attention_items_word(group: int) -> int:
    """Header word with the number of a layer group's attention items."""
    return FIRST_GROUP + GROUP_WORDS * group + _ATTENTION_ITEMS


def table_stride_word(group: int) -> int:
    """Header word with the columns of a layer group's block table."""
    return FIRST_GROUP + GROUP_WORDS * group + _TABLE_STRIDE


class BatchMemory:
    """Arrays that batches are copied into, one after the other.

    Attributes:
        capacity: what there is room for.
        token_ids: int32 [tokens].
        positions: int32 [tokens].
        query_start: int32 [sequences + 1].
        state_slots: int32 [sequences].
        logit_rows: int32 [R].
        keep_logits: bool [R].
        is_long: bool [tokens]: whether the token is of a long sequence.
        slots: per layer group int64 [tokens].
        tables: per layer group int32 [sequences * columns], as wide as the batch's table.
        items: per layer group int32 [attention items, ITEM_WORDS].
    """

    def __init__(
        self, capacity: Capacity, groups: Sequence[LayerGroup], experts_a_token: int = 0
    ) -> None:
        self.capacity = capacity
        self._groups = groups
        self._experts_a_token = experts_a_token
        c = capacity
        self.token_ids = np.empty(c.tokens, np.int32)
        self.positions = np.empty(c.tokens, np.int32)
        self.query_start = np.empty(c.sequences + 1, np.int32)
        self.state_slots = np.empty(c.sequences, np.int32)
        self.is_long = np.zeros(c.tokens, np.bool_)
        self.logit_rows = np.empty(c.logit_rows, np.int32)
        self.keep_logits = np.empty(c.logit_rows, np.bool_)
        self.slots = [np.empty(c.tokens, np.int64) for _ in groups]
        self.tables = [np.empty(c.sequences * c.columns, np.int32) for _ in groups]
        most = [most_attention_items(c.tokens, c.sequences, g.num_kv_heads) for g in groups]
        self.items = [np.empty((count, ITEM_WORDS), np.int32) for count in most]

    def load(self, batch: Batch, header: NDArray[np.int64], threads: int) -> None:
        """Copy a batch in, and its numbers into the header."""
        tokens, rows = batch.num_tokens, len(batch.logit_rows)
        self.token_ids[:tokens] = batch.token_ids
        self.positions[:tokens] = batch.positions
        self.query_start[: batch.num_sequences + 1] = batch.query_start
        if batch.state_slots is not None:
            self.state_slots[: batch.num_sequences] = batch.state_slots
        is_long = batch.is_long
        lengths = np.diff(batch.query_start)
        self.is_long[:tokens] = False if is_long is None else np.repeat(is_long, lengths)
        self.logit_rows[:rows] = batch.logit_rows
        self.keep_logits[:rows] = batch.keep_logits
        header[TOKENS], header[LOGIT_ROWS] = tokens, rows
        header[SEQUENCES] = batch.num_sequences
        header[TOKENS_AN_ITEM], header[TOKEN_ITEMS] = _shares(tokens, threads)
        header[LOGITS_AN_ITEM], header[LOGIT_ITEMS] = _shares(rows, threads)
        header[PAIRS] = tokens * self._experts_a_token
        header[PAIRS_AN_ITEM], header[PAIR_ITEMS] = _shares(int(header[PAIRS]), threads)
        for g, group in enumerate(self._groups):
            self.slots[g][:tokens] = batch.slots[g]
            table = batch.block_tables[g]
            self.tables[g][: table.size] = table.reshape(-1)
            header[attention_items_word(g)] = attention_items(
                batch.query_start,
                batch.positions,
                group.num_kv_heads,
                group.window,
                threads,
                self.items[g],
            )
            header[table_stride_word(g)] = table.shape[1]


def _shares(rows: int, threads: int) -> tuple[int, int]:
    """Rows of an item and number of items; a thread alone has a single item."""
    if threads == 1 or rows <= 1:
        return max(1, rows), min(1, rows)
    an_item = -(-rows // (_ITEMS_A_THREAD * threads))
    return an_item, -(-rows // an_item)

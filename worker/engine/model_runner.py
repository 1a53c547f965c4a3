"""Model runner: scheduled chunks to one ragged batch, through the model, to logits."""

from collections.abc import Sequence as Chunks

import numpy as np
from numpy.typing import NDArray

from kvpool import FREED, BlockTables, KVCache
from worker.kernels.batch_arrays import fill_slots
from worker.models.batch import Batch
from worker.models.logits import Logits
from worker.models.model import Model

from .scheduler import ScheduledChunk


class ModelRunner:
    """Builds the batch of a step in buffers that are used again, and runs the model on it.

    The block tables are as wide as the longest sequence so far, not as the model's context: that
    is a number in a file, and may be absurd.
    """

    def __init__(
        self,
        model: Model,
        kv: KVCache,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
    ) -> None:
        self._model = model
        self._has_long = model.config.long_from is not None
        self._kv = kv
        T, S, G = max_num_batched_tokens, max_num_seqs, len(kv.groups)
        self._token_ids = np.empty(T, np.int32)
        self._positions = np.empty(T, np.int32)
        self._query_start = np.zeros(S + 1, np.int32)
        self._slots = np.empty((G, T), np.int64)
        self._tables = np.empty((G, S, 0), np.int32)
        self._filled = np.zeros((G, S), np.int64)  # columns of each row that hold block ids

    def run(self, chunks: Chunks[ScheduledChunk]) -> Logits:
        """Logits of the chunks that sample, in their order."""
        return self._model.forward(self._batch(chunks), self._kv)

    def _batch(self, chunks: Chunks[ScheduledChunk]) -> Batch:
        S, T = len(chunks), self._fill_tokens(chunks)
        self._widen(max(t.num_columns for chunk in chunks for t in chunk.sequence.tables))
        for s, chunk in enumerate(chunks):
            self._fill_tables(s, chunk.sequence.tables)
        self._fill_slots(S, T)
        sampling = [(s, chunk.sequence.params) for s, chunk in enumerate(chunks) if chunk.samples]
        last = self._query_start[1 : S + 1] - 1
        return Batch(
            token_ids=self._token_ids[:T],
            positions=self._positions[:T],
            query_start=self._query_start[: S + 1],
            logit_rows=last[[s for s, _ in sampling]],
            keep_logits=np.array([params.needs_logits for _, params in sampling], np.bool_),
            slots=tuple(slots[:T] for slots in self._slots),
            block_tables=tuple(tables[:S] for tables in self._tables),
            state_slots=self._state_slots(chunks),
            is_long=self._is_long(chunks) if self._has_long else None,
        )

    def _state_slots(self, chunks: Chunks[ScheduledChunk]) -> NDArray[np.int32] | None:
        if self._kv.states is None:
            return None
        return np.array([chunk.sequence.tables.state for chunk in chunks], np.int32)

    def _is_long(self, chunks: Chunks[ScheduledChunk]) -> NDArray[np.bool_]:
        return np.array([chunk.sequence.is_long for chunk in chunks], np.bool_)

    def _fill_tokens(self, chunks: Chunks[ScheduledChunk]) -> int:
        """Token ids, positions and borders of all chunks; how many tokens there are."""
        token_ids: list[int] = []
        positions: list[int] = []
        query_start = [0]
        for chunk in chunks:
            first = chunk.sequence.num_computed_tokens
            stop = first + chunk.num_tokens
            token_ids += chunk.sequence.token_ids[first:stop]
            positions += range(first, stop)
            query_start.append(len(token_ids))
        self._token_ids[: len(token_ids)] = token_ids
        self._positions[: len(positions)] = positions
        self._query_start[: len(query_start)] = query_start
        return len(token_ids)

    def _widen(self, columns: int) -> None:
        """Make the tables at least that wide; they at least double, so it happens seldom."""
        if columns > self._tables.shape[2]:
            columns = max(columns, 2 * self._tables.shape[2])
            self._tables = np.full((*self._tables.shape[:2], columns), FREED, np.int32)
            self._filled[:] = 0

    def _fill_tables(self, s: int, tables: BlockTables) -> None:
        """Copy a sequence's tables into row s, and clear what a longer one left there."""
        for g, table in enumerate(tables):
            n = table.num_columns
            self._tables[g, s, :n] = table.blocks
            self._tables[g, s, n : self._filled[g, s]] = FREED
            self._filled[g, s] = n

    def _fill_slots(self, S: int, T: int) -> None:
        """Where each token's K/V go, in each group."""
        positions, borders = self._positions[:T], self._query_start[: S + 1]
        for slots, tables in zip(self._slots, self._tables, strict=True):
            fill_slots(positions, borders, tables, self._kv.block_size, slots)

"""Model runner: scheduled chunks to one ragged batch, through the model, to logits."""

from collections.abc import Sequence as Chunks

import numpy as np

from kvpool import FREED, BlockTables, KVCache
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
        self._kv = kv
        T, S, G = max_num_batched_tokens, max_num_seqs, len(kv.groups)
        self._token_ids = np.empty(T, np.int32)
        self._positions = np.empty(T, np.int32)
        self._owners = np.empty(T, np.int64)  # the sequence of each token
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
        self._fill_slots(T)
        last = self._query_start[1 : S + 1] - 1
        sampling = [chunk.sequence.params for chunk in chunks if chunk.samples]
        return Batch(
            token_ids=self._token_ids[:T],
            positions=self._positions[:T],
            query_start=self._query_start[: S + 1],
            logit_rows=last[[chunk.samples for chunk in chunks]],
            keep_logits=np.array([params.needs_logits for params in sampling], np.bool_),
            slots=tuple(slots[:T] for slots in self._slots),
            block_tables=tuple(tables[:S] for tables in self._tables),
        )

    def _fill_tokens(self, chunks: Chunks[ScheduledChunk]) -> int:
        """Token ids, positions and owners of all chunks; how many tokens there are."""
        end = 0
        for s, chunk in enumerate(chunks):
            first, start = chunk.sequence.num_computed_tokens, end
            end += chunk.num_tokens
            stop = first + chunk.num_tokens
            self._token_ids[start:end] = chunk.sequence.token_ids[first:stop]
            self._positions[start:end] = np.arange(first, stop)
            self._owners[start:end] = s
            self._query_start[s + 1] = end
        return end

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

    def _fill_slots(self, T: int) -> None:
        """Where each token's K/V go: block * block_size + offset, in each group."""
        columns, offsets = np.divmod(self._positions[:T], self._kv.block_size)
        for slots, tables in zip(self._slots, self._tables, strict=True):
            blocks = tables[self._owners[:T], columns]
            np.multiply(blocks, self._kv.block_size, out=slots[:T])
            slots[:T] += offsets

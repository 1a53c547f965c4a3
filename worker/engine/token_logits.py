"""The logits after every token of a text, some tokens at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kvpool import BlockTables
from worker.models.batch import Batch
from worker.models.rope_config import rotates_as_long

from .admission import new_tables
from .config import EngineConfig
from .kv_setup import build_kv
from .loading import LoadedModel

# A row of logits has up to 262,144 values: memory is bounded by the bytes of a step's logits, so
# that texts can be long.
_LOGITS_BYTES = 1 << 26
_MOST_TOKENS = 256


class TokenLogits:
    """Runs one sequence after the other through a model and gives the logits of all its tokens.

    It is the forward pass of the engine: the bits do not depend on how a sequence is cut into
    steps.

    Attributes:
        max_tokens: most tokens of a sequence.
    """

    max_tokens: int

    def __init__(self, loaded: LoadedModel, config: EngineConfig, max_tokens: int) -> None:
        """Reserve a KV pool for one sequence.

        Args:
            loaded: the model; one `TokenLogits` at a time may use it.
            config: the settings it was loaded with; the pool's size in them plays no part.
            max_tokens: at most the model's context.

        Raises:
            PoolSizeError: this machine cannot hold the K/V of so many tokens.
        """
        self.max_tokens = max_tokens
        self._model = loaded.model
        self._vocab_size = loaded.tokenizer.vocab_size
        row_bytes = 4 * loaded.model.config.vocab_size
        self._step = min(_MOST_TOKENS, max(1, _LOGITS_BYTES // row_bytes), max_tokens)
        one_sequence = config.model_copy(
            update={
                "max_num_seqs": 1,
                "max_num_batched_tokens": self._step,
                "kv_pool_bytes": None,
                "kv_pool_tokens": max_tokens,
            }
        )
        self._pool, self._kv = build_kv(self._model, one_sequence, max_tokens)

    def of(
        self, token_ids: Sequence[int], first: int = 0
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """The logits after token `first` and all later ones.

        Args:
            token_ids: the sequence, from position 0.
            first: tokens before it are context only.

        Yields:
            Index of a token, and logits float32 [n, tokens of the vocabulary] of it and the n - 1
            after it; the next step overwrites them.
        """
        assert len(token_ids) <= self.max_tokens, (len(token_ids), self.max_tokens)
        is_long = rotates_as_long(len(token_ids) + 1, self._model.config.long_from)
        tables = new_tables(self._pool, is_long=is_long)
        try:
            for start in range(0, len(token_ids), self._step):
                end = min(start + self._step, len(token_ids))
                self._pool.free_outside_window(tables, start)
                fits = self._pool.allocate(tables, start, end)
                assert fits, "the pool holds a sequence of max_tokens"
                batch = self._batch(token_ids[start:end], start, first, tables, is_long=is_long)
                logits = self._model.forward(batch, self._kv)
                if len(logits):
                    yield max(start, first), logits.rows[:, : self._vocab_size]
        finally:
            self._pool.free(tables)

    def _batch(
        self,
        token_ids: Sequence[int],
        start: int,
        first: int,
        tables: BlockTables,
        *,
        is_long: bool,
    ) -> Batch:
        """The tokens from position `start` on, logits from position `first` on."""
        n = len(token_ids)
        positions = np.arange(start, start + n, dtype=np.int32)
        columns, offsets = np.divmod(positions, self._kv.block_size)
        rows = np.arange(min(n, max(0, first - start)), n, dtype=np.int32)
        blocks = [table.blocks[columns].astype(np.int64) for table in tables]
        return Batch(
            token_ids=np.array(token_ids, np.int32),
            positions=positions,
            query_start=np.array([0, n], np.int32),
            logit_rows=rows,
            keep_logits=np.ones(len(rows), np.bool_),
            slots=tuple(block * self._kv.block_size + offsets for block in blocks),
            block_tables=tuple(table.blocks[None] for table in tables),
            state_slots=None if tables.state is None else np.array([tables.state], np.int32),
            is_long=np.array([is_long]),
        )

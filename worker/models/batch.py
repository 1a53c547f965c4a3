"""One step's ragged batch: the new tokens of all scheduled sequences, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.kernels.batch_arrays import (
    LOGIT_ROWS,
    NO_FAULT,
    POSITIONS,
    QUERY_START,
    SLOTS,
    TOKEN_IDS,
    batch_fault,
    slots_fault,
)

_FAULTS = {
    QUERY_START: "query_start does not cut the tokens into sequences",
    TOKEN_IDS: "a token id outside the vocabulary",
    POSITIONS: "a position past the rotary tables",
    LOGIT_ROWS: "a logit row outside the batch",
    SLOTS: "a slot outside the pool",
}


@dataclass(slots=True)
class Batch:
    """T new tokens of S sequences, R of which get logits.

    Attributes:
        token_ids: int32 [T].
        positions: int32 [T]: of each token in its sequence, ascending by one within a sequence.
        query_start: int32 [S + 1]: sequence s owns tokens query_start[s] to query_start[s + 1]; its
            length so far is the position of its last token + 1.
        logit_rows: int32 [R]: indices into the T tokens.
        keep_logits: bool [R]: whether all logits of the row are needed, not its best token alone.
        slots: per layer group int64 [T]: block * block_size + offset where a token's K/V go.
        block_tables: per layer group int32 [S, max_blocks]: column j names the pool block that
            holds positions j * block_size to (j + 1) * block_size; -1 where none is held, which is
            right only behind the group's window or after the sequence's end.
        state_slots: int32 [S]: of each sequence's recurrent state, no two the same; None where the
            model's layers have none.
        is_long: bool [S]: sequences whose positions are rotated as those of long ones, where the
            model tells them apart (LongRoPE); all chunks of a sequence must agree. None: none is.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    query_start: NDArray[np.int32]
    logit_rows: NDArray[np.int32]
    keep_logits: NDArray[np.bool_]
    slots: Sequence[NDArray[np.int64]]
    block_tables: Sequence[NDArray[np.int32]]
    state_slots: NDArray[np.int32] | None = None
    is_long: NDArray[np.bool_] | None = None

    @property
    def num_tokens(self) -> int:
        """T."""
        return len(self.token_ids)

    @property
    def num_sequences(self) -> int:
        """S."""
        return len(self.query_start) - 1

    def check(
        self, vocab_size: int, num_positions: int, num_slots: Sequence[int], num_states: int = 0
    ) -> None:
        """Assert that kernels, which check nothing, stay within their arrays.

        Args:
            vocab_size: rows of the embedding.
            num_positions: rows of the rotary tables.
            num_slots: per layer group, slots of the pool.
            num_states: slots of recurrent states; 0 where the model's layers have none.
        """
        tokens, sequences = self.num_tokens, self.num_sequences
        assert tokens > 0, "a batch without tokens"
        for name in ("token_ids", "positions", "query_start", "logit_rows"):
            assert getattr(self, name).dtype == np.int32, f"{name} is not int32"
        assert self.positions.shape == (tokens,), (self.positions.shape, tokens)
        assert self.keep_logits.dtype == np.bool_, self.keep_logits.dtype
        assert self.keep_logits.shape == self.logit_rows.shape, self.keep_logits.shape
        fault = batch_fault(
            self.token_ids,
            self.positions,
            self.query_start,
            self.logit_rows,
            vocab_size,
            num_positions,
        )
        assert fault == NO_FAULT, _FAULTS[fault]
        assert len(self.slots) == len(self.block_tables) == len(num_slots), len(num_slots)
        if self.is_long is not None:
            assert self.is_long.dtype == np.bool_, self.is_long.dtype
            assert self.is_long.shape == (sequences,), (self.is_long.shape, sequences)
        for slots, table, count in zip(self.slots, self.block_tables, num_slots, strict=True):
            assert slots.dtype == np.int64, slots.dtype
            assert slots.shape == (tokens,), (slots.shape, tokens)
            assert slots_fault(slots, count) == NO_FAULT, _FAULTS[SLOTS]
            assert table.dtype == np.int32, table.dtype
            assert len(table) == sequences, (table.shape, sequences)
        self._check_states(num_states)

    def _check_states(self, num_states: int) -> None:
        states = self.state_slots
        assert (states is None) == (num_states == 0), (states, num_states)
        if states is not None:
            assert states.dtype == np.int32, states.dtype
            assert states.shape == (self.num_sequences,), (states.shape, self.num_sequences)
            slots = set(states.tolist())
            assert len(slots) == self.num_sequences, f"a state of two sequences: {states}"
            assert slots <= set(range(num_states)), (states, num_states)

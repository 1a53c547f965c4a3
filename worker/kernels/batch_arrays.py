"""Filling and checking the arrays of a step's batch: many small loops, too slow in NumPy calls."""

import numpy as np
from numpy.typing import NDArray

from .jit import kernel

NO_FAULT, QUERY_START, TOKEN_IDS, POSITIONS, LOGIT_ROWS, SLOTS = range(6)
"""What `batch_fault` and `slots_fault` find wrong."""


@kernel
def fill_slots(
    positions: NDArray[np.int32],
    query_start: NDArray[np.int32],
    tables: NDArray[np.int32],
    block_size: int,
    slots: NDArray[np.int64],
) -> None:
    """Write where each token's K/V go: block * block_size + offset.

    Args:
        positions: [T] int32, of each token in its sequence.
        query_start: [S + 1] int32: sequence s owns tokens query_start[s] to query_start[s + 1].
        tables: [S or more, columns] int32: the block that holds a column's positions.
        block_size: tokens of a block.
        slots: [T] int64, the result.
    """
    for s in range(len(query_start) - 1):
        for t in range(query_start[s], query_start[s + 1]):
            column = positions[t] // block_size
            block = np.int64(tables[s, column])
            slots[t] = block * block_size + (positions[t] - column * block_size)


@kernel
def batch_fault(
    token_ids: NDArray[np.int32],
    positions: NDArray[np.int32],
    query_start: NDArray[np.int32],
    logit_rows: NDArray[np.int32],
    vocab_size: int,
    num_positions: int,
) -> int:
    """The first array with a number that leads out of another one, see `Batch.check`."""
    tokens, sequences = len(token_ids), len(query_start) - 1
    if query_start[0] != 0 or query_start[sequences] != tokens:
        return QUERY_START
    for s in range(sequences):
        if query_start[s + 1] <= query_start[s]:
            return QUERY_START
    for t in range(tokens):
        if token_ids[t] < 0 or token_ids[t] >= vocab_size:
            return TOKEN_IDS
        if positions[t] < 0 or positions[t] >= num_positions:
            return POSITIONS
    for row in logit_rows:
        if row < 0 or row >= tokens:
            return LOGIT_ROWS
    return NO_FAULT


@kernel
def slots_fault(slots: NDArray[np.int64], num_slots: int) -> int:
    """Whether a slot is outside the pool."""
    for slot in slots:
        if slot < 0 or slot >= num_slots:
            return SLOTS
    return NO_FAULT

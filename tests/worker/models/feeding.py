"""Feeding token ids to a model without an engine: blocks, slots and tables by hand."""

import numpy as np

from kvpool import KVCache, StateCache
from worker.compute_config import ComputeConfig
from worker.gguf import GGUFFile
from worker.models.batch import Batch
from worker.models.registry import load_model
from worker.models.rope_config import rotates_as_long
from worker.stages import Stages

BLOCK_SIZE = 16


def open_model(path, team, stages=None, **compute):
    """A loaded model of a file."""
    file = GGUFFile.open(path)
    return load_model(
        file, ComputeConfig(**{"mode": "f32", **compute}), team=team, stages=stages or Stages()
    )


class Feeder:
    """Sequences in flight: each call of `step` feeds some of their next tokens."""

    def __init__(self, model, max_length, sequences=1, block_size=BLOCK_SIZE, spare_blocks=0):
        self.model = model
        blocks = -(-max_length // block_size)
        groups = len(model.layer_groups)
        total = blocks * sequences + spare_blocks
        states = None
        if model.state_shape is not None:
            states = StateCache(model.state_shape, sequences)
        self.kv = KVCache(model.layer_groups, [total] * groups, block_size, states=states)
        # Blocks of a sequence are scattered, and lie elsewhere in each group.
        random = np.random.default_rng(0)
        self.tables = [
            random.permutation(total)[: blocks * sequences].astype(np.int32).reshape(sequences, -1)
            for _ in range(groups)
        ]
        self.lengths = [0] * sequences
        self.long = dict.fromkeys(range(sequences), False)

    def batch(self, parts, logit_rows=None):
        """The batch of {sequence: next ids}, logits for all rows unless said otherwise."""
        positions = [np.arange(len(ids)) + self.lengths[s] for s, ids in parts.items()]
        sequence = np.repeat(list(parts), [len(ids) for ids in parts.values()])
        position = np.concatenate(positions).astype(np.int32)
        size = self.kv.block_size
        tables = [table[list(parts)] for table in self.tables]
        slots = [
            table[sequence, position // size].astype(np.int64) * size + position % size
            for table in self.tables
        ]
        starts = np.cumsum([0] + [len(ids) for ids in parts.values()]).astype(np.int32)
        ids = np.concatenate([np.array(ids, np.int32) for ids in parts.values()])
        rows = np.arange(len(ids)) if logit_rows is None else np.array(logit_rows)
        keep = np.ones(len(rows), np.bool_)
        # Slots in another order than sequences.
        states = None if self.kv.states is None else len(self.lengths) - 1 - np.array(list(parts))
        slots_of_states = None if states is None else states.astype(np.int32)
        long = np.array([self.long[s] for s in parts], np.bool_)
        rows = rows.astype(np.int32)
        return Batch(ids, position, starts, rows, keep, slots, tables, slots_of_states, long)

    def step(self, parts, logit_rows=None):
        """Feed {sequence: next ids}; logits of the rows asked for, a copy."""
        logits = self.model.forward(self.batch(parts, logit_rows), self.kv).rows.copy()
        for sequence, ids in parts.items():
            self.lengths[sequence] += len(ids)
        return logits

    def all_logits(self, ids, chunk):
        """Feed sequence 0 in chunks: logits of every position."""
        parts = [self.step({0: ids[at : at + chunk]}) for at in range(0, len(ids), chunk)]
        return np.concatenate(parts)


def logits_of(model, ids, chunk=512):
    """Logits [len(ids), vocabulary] of a sequence on its own."""
    feeder = Feeder(model, len(ids))
    feeder.long[0] = rotates_as_long(len(ids) + 1, model.config.long_from)
    return feeder.all_logits(ids, chunk)

"""A model whose logits are a hash of the tokens it reads back from the K/V arrays.

It knows a sequence's history through block tables alone: a wrong slot, a table that lost a block or
a block that belongs to two sequences gives other tokens. ``logits_of`` is the same without
any cache: the twin.
"""

from types import SimpleNamespace

import numpy as np

from kvpool import LayerGroup
from worker.engine.completion import Completion
from worker.engine.sampler import Sampler
from worker.errors import RowError
from worker.models.logits import Logits
from worker.thread_team import ThreadTeam
from worker.tokenizer.detokenizer import Detokenizer

from .sequences import byte_piece, make_sequence

VOCAB = 260
END = 256
WINDOW = 6
GROUPS = (
    LayerGroup("full", (1,), num_kv_heads=1, head_dim=2, window=None),
    LayerGroup("window", (0, 2), num_kv_heads=1, head_dim=2, window=WINDOW),
)


def logits_of(tokens):
    """float32 [VOCAB]: depends on all tokens, and once more on the last WINDOW ones."""
    state = 0
    for token in [*tokens, 999, *tokens[-WINDOW:]]:
        state = (state * 1_000_003 + token + 1) % (1 << 61)
    logits = np.random.default_rng(state).normal(0, 2, VOCAB).astype(np.float32)
    logits[128:256] = -20  # text stays ASCII
    return logits


def whole(rows, vocab=None):
    """Logits of which every row is kept, from float32 [R, vocab or more]."""
    best = np.array([row[:vocab].argmax() for row in rows], np.int32)
    values = rows[range(len(rows)), best]
    sound = np.isfinite(rows[:, :vocab]).all(1)
    return Logits(rows, np.ones(len(rows), bool), np.where(sound, best, -1).astype("i4"), values)


class FakeModel:
    """A model of three layers in two groups; V holds (token, position)."""

    numerics = "fake"
    layer_groups = GROUPS
    state_shape = None

    def __init__(self, context_length=64, logits=logits_of):
        self.config = SimpleNamespace(
            context_length=context_length, vocab_size=VOCAB, long_from=None
        )
        counters = SimpleNamespace(hits=0, misses=0, evictions=0, n_bytes=0, peak_bytes=0)
        self.dequant_cache = SimpleNamespace(stats=lambda: counters)
        self.batches = []
        self._logits = logits

    def forward(self, batch, kv):
        """Write the batch's tokens to the cache, read the history back, hash it."""
        batch.check(
            VOCAB, self.config.context_length, [v.shape[1] * kv.block_size for v in kv.values]
        )
        self.batches.append((len(batch.token_ids), len(batch.query_start) - 1))
        for g, values in enumerate(kv.values):
            blocks, offsets = np.divmod(batch.slots[g], kv.block_size)
            values[:, blocks, 0, offsets, 0] = batch.token_ids
            values[:, blocks, 0, offsets, 1] = batch.positions
        owners = np.searchsorted(batch.query_start, batch.logit_rows, side="right") - 1
        rows = [
            self._row(batch, kv, s, batch.positions[row] + 1)
            for s, row in zip(owners, batch.logit_rows, strict=True)
        ]
        return whole(np.array(rows, np.float32).reshape(-1, VOCAB))

    def _row(self, batch, kv, s, length):
        full = _history(kv.values[0][0], batch.block_tables[0][s], 0, length)
        windows = [
            _history(layer, batch.block_tables[1][s], max(0, length - WINDOW), length)
            for layer in kv.values[1]
        ]
        assert windows[0] == windows[1] == full[-WINDOW:]
        return self._logits(full)


def _history(layer, table, start, length):
    positions = np.arange(start, length)
    blocks = table[positions // layer.shape[2]]
    assert (blocks >= 0).all(), "a block in reach was freed"
    entries = layer[blocks, 0, positions % layer.shape[2]]
    assert entries[:, 1].tolist() == positions.tolist(), "another token's slot"
    return entries[:, 0].astype(int).tolist()


class FakeTokenizer:
    """Bytes as tokens, token 256 ends the text."""

    vocab_size = VOCAB
    end_ids = frozenset({END})

    def detokenizer(self):
        """Of bytes."""
        return Detokenizer(byte_piece)


class FakeEncoder:
    """Prompts as their bytes."""

    def encode(self, request, *, max_tokens=None):
        """Ids as they are, text as bytes; RowError without either."""
        if request.prompt_token_ids is not None:
            return list(request.prompt_token_ids)
        if request.prompt is None:
            raise RowError("prompt is null")
        return list(request.prompt.encode())


def one_at_a_time(
    request, context=64, logits=logits_of, job_seed=0, completion_index=0
) -> Completion:
    """The twin of the engine: one row, whole history, no pool, no batch."""
    params = {name: getattr(request.sampling, name) for name in request.sampling.__slots__}
    prompt = FakeEncoder().encode(request)
    new = min(context - len(prompt), request.sampling.max_tokens or context)
    sequence = make_sequence(
        prompt,
        row_id=request.row_id,
        max_new=new,
        end=(END,),
        job_seed=job_seed,
        completion_index=completion_index,
        **params,
    )
    while True:
        row = logits(sequence.token_ids)
        (sample,) = Sampler(VOCAB, ThreadTeam(1)).sample(whole(row[None]), [sequence])
        ending = sequence.append(sample.token_id, sample.logprobs)
        if ending is not None:
            return sequence.completion(ending, 0.0)

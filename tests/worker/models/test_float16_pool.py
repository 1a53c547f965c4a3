"""Models with keys and values in float16: rounded, never silently wrong, independent of chunks."""

import numpy as np
import pytest

from kvpool import KVCache
from tests.worker.models import tiny_llama
from tests.worker.models.feeding import BLOCK_SIZE, Feeder, open_model

IDS = [3, 1, 4, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33]


def _logits(model, dtype, chunk=7):
    """Logits of IDS, fed in chunks, over a pool of a type."""
    feeder = Feeder(model, len(IDS))
    blocks = [len(keys[0]) for keys in feeder.kv.keys]
    feeder.kv = KVCache(model.layer_groups, blocks, BLOCK_SIZE, dtype)
    return feeder.all_logits(IDS, chunk)


def _model(path, team, scaled=(), factor=1.0):
    """A random llama of which some tensors are multiplied."""
    weights = tiny_llama.tensors()
    for name in scaled:
        weights[name] = weights[name] * np.float32(factor)
    return open_model(tiny_llama.write(path / "model.gguf", tiny_llama.keys(), weights), team)


def test_keys_and_values_are_rounded(tmp_path, team):
    """Logits move by about the precision of float16: 11 bits."""
    model = _model(tmp_path, team)
    exact, rounded = _logits(model, "float32"), _logits(model, "float16")
    assert 1e-6 < np.abs(exact - rounded).max() < 1e-2


def test_chunks_change_no_bit(tmp_path, team):
    """Token by token and all at once: a chunk's own keys are rounded as those before it."""
    model = _model(tmp_path, team)
    one, whole = _logits(model, "float16", 1), _logits(model, "float16", len(IDS))
    assert np.array_equal(one, whole)


@pytest.mark.parametrize("part", ["k", "v"])
def test_what_float16_cannot_hold_makes_nan_of_the_logits(part, tmp_path, team):
    """Numbers beyond 65,504, in keys or in values: fine in float32, an error in float16."""
    model = _model(tmp_path, team, [f"blk.0.attn_{part}.weight"], 1e6)
    assert np.isfinite(_logits(model, "float32")).all()
    assert np.isnan(_logits(model, "float16")).all()

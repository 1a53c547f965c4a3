"""The determinism contract: a row's logits have the same bits whatever surrounds it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.worker.models.feeding import Feeder, logits_of, open_model
from worker.gguf import GGUFFile
from worker.thread_team import ThreadTeam

TINY = Path(__file__).parents[2] / "data" / "tiny"
FILES = {
    "llama": "llama-Q4_1.gguf",
    "llama3-rope": "llama3-rope-F16.gguf",
    "gemma3": "gemma3-F16.gguf",
    "gpt2": "gpt2-F16.gguf",
    "olmo3": "olmo3-F16.gguf",
    "stablelm": "stablelm-F16.gguf",
    "mixtral": "mixtral-Q8_0.gguf",
    "qwen3moe": "qwen3moe-F16.gguf",
    "gpt-oss": "gpt-oss-Q8_0.gguf",
    "qwen35": "qwen35-Q4_0.gguf",
}


def _prompts(name):
    prompts = json.loads((TINY / name / "model.json").read_text())["prompts"]
    return [prompt["ids"] for prompt in prompts]


@pytest.fixture(params=sorted(FILES))
def name(request):
    """Each architecture."""
    return request.param


@pytest.fixture(params=["blas", "compiled"])
def model(request, name, team):
    """A tiny model with either matrix product."""
    return open_model(TINY / name / FILES[name], team, matmul=request.param)


@pytest.mark.parametrize("chunk", [1, 7, 16, 33])
def test_chunk_size_changes_no_bit(name, model, chunk):
    """A prompt of 95 tokens and more, at once and cut: equal logits at every position."""
    ids = _prompts(name)[1]
    assert np.array_equal(logits_of(model, ids), logits_of(model, ids, chunk))


def test_neighbours_change_no_bit(name, model):
    """A prompt alone, and among others that prefill and decode at the same time."""
    short, long = _prompts(name)
    alone = logits_of(model, long)
    feeder = Feeder(model, 200, sequences=5)
    feeder.step({3: short, 1: long[:40]})
    found = []
    for at in range(0, len(long), 10):
        part = long[at : at + 10]
        neighbours = {3: [5], 1: [7], 4: short[: at % 20 + 1]}
        rows = range(2, 2 + len(part))
        found.append(feeder.step({3: [5], 1: [7], 0: part, 4: neighbours[4]}, rows))
    assert np.array_equal(alone, np.concatenate(found))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_no_bit(name, team, threads):
    """One, two and three threads."""
    ids = _prompts(name)[1]
    expected = logits_of(open_model(TINY / name / FILES[name], team), ids)
    with ThreadTeam(threads) as other:
        assert np.array_equal(
            expected, logits_of(open_model(TINY / name / FILES[name], other), ids)
        )


def test_the_dequant_cache_changes_no_bit(name, team):
    """Weights that slide through two buffers are the same weights."""
    ids = _prompts(name)[1]
    expected = logits_of(open_model(TINY / name / FILES[name], team), ids)
    bounded = open_model(TINY / name / FILES[name], team, dequant_cache_layers=2)
    assert np.array_equal(expected, logits_of(bounded, ids, 40))
    assert bounded.dequant_cache.stats().evictions > 0
    bounded.dequant_cache.check_invariants()


@pytest.mark.parametrize("block_size", [8, 32, 20])
def test_any_block_size_gives_the_reference(name, team, block_size):
    """Blocks set the order of the softmax's sums, so bits differ, but not the values."""
    ids = _prompts(name)[1]
    model = open_model(TINY / name / FILES[name], team)
    reference = logits_of(model, ids)
    found = Feeder(model, len(ids), block_size=block_size).all_logits(ids, 50)
    np.testing.assert_allclose(reference, found, atol=1e-4)


def test_real_rows_are_independent(smollm2_model, gemma3_model):
    """At real sizes: a row alone, in chunks, and in a batch of 20; equal bits."""
    for model in (smollm2_model, gemma3_model):
        ids = np.random.default_rng(0).integers(10, 40_000, 60).tolist()
        alone = logits_of(model, ids)
        assert np.array_equal(alone, logits_of(model, ids, 17))
        feeder = Feeder(model, 60, sequences=20)
        together = feeder.step({s: ids[: 3 * s + 3] for s in range(20)})
        start = 0
        for s in range(20):
            rows = together[start : start + 3 * s + 3]
            assert np.array_equal(alone[: len(rows)], rows)
            start += len(rows)


@pytest.mark.parametrize("share", [0.5, None])
def test_a_real_model_under_a_bounded_cache(smollm2, smollm2_model, team, share):
    """Half of the bytes, and a window of 2 layers: the same logits, the promised hits."""
    units = [unit.n_bytes for unit in smollm2_model.dequant_cache.units]
    assert sum(units) == smollm2_model.dequant_cache.stats().reserved_bytes
    if share is None:
        limit, bound, window = 2 * max(units), {"dequant_cache_layers": 2}, 2
    else:
        limit = int(sum(units) * share)
        bound, window = {"dequant_cache_bytes": limit}, limit // max(units)
    bounded = open_model(smollm2, team, **bound)
    ids = [504, 3575, 282, 4649, 314]
    assert np.array_equal(logits_of(smollm2_model, ids, 2), logits_of(bounded, ids, 2))
    stats = bounded.dequant_cache.stats()
    bounded.dequant_cache.check_invariants()
    assert stats.peak_bytes <= stats.reserved_bytes <= limit
    # Layers are of one size, slices of the head a little smaller. The first of the three steps
    # fills the cache and hits nothing.
    assert (stats.pinned, stats.hits) == (window - 2, 2 * (window - 2))
    assert stats.hits + stats.misses == 3 * stats.units == 3 * len(units)


def test_weights_lie_in_the_cache_once(smollm2, smollm2_model):
    """Tied embeddings are one matrix, and QKV and gate/up take no second copy."""
    values = sum(
        info.n_values for info in GGUFFile.open(smollm2).tensors.values() if len(info.shape) == 2
    )
    assert 4 * values == smollm2_model.dequant_cache.stats().reserved_bytes

"""What a step allocates and in which type it computes."""

import tracemalloc

import numpy as np
import pytest

from tests.worker.models.feeding import Feeder, open_model
from worker.stages import STAGE_NAMES, Stages

DELTA_STAGES = {"delta_inputs", "convolution", "delta_rule", "delta_output"}


def _peak_of_a_step(feeder, parts):
    """Most bytes held during a step beyond those before it; buffers have grown already."""
    batch = feeder.batch(parts, [0])
    feeder.model.forward(batch, feeder.kv)
    tracemalloc.start()
    try:
        feeder.model.forward(batch, feeder.kv)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_decode_step_allocates_nothing_of_a_weight_s_size(smollm2_model):
    """The smallest projection has 442,368 bytes; a step of two rows stays far below."""
    feeder = Feeder(smollm2_model, 64, sequences=2)
    assert _peak_of_a_step(feeder, {0: [5], 1: [6]}) < 100_000


def test_a_prefill_step_allocates_nothing_of_a_weight_s_size(smollm2_model):
    """60 tokens at once: intermediates live in buffers that were there already."""
    feeder = Feeder(smollm2_model, 64)
    assert _peak_of_a_step(feeder, {0: list(range(60))}) < 200_000


def test_the_size_of_the_pool_does_not_matter(data, team):
    """The same peak with a pool a hundred times as large: nothing of the pool is copied."""
    model = open_model(data / "tiny" / "gemma3" / "gemma3-F16.gguf", team)
    small = _peak_of_a_step(Feeder(model, 64), {0: [5, 6, 7]})
    large = _peak_of_a_step(Feeder(model, 64, spare_blocks=400), {0: [5, 6, 7]})
    assert large < small + 10_000


def test_a_bounded_cache_allocates_nothing_either(smollm2, team):
    """Weights slide through buffers that were reserved at the start."""
    model = open_model(smollm2, team, dequant_cache_layers=2)
    assert _peak_of_a_step(Feeder(model, 64), {0: [5]}) < 150_000


@pytest.mark.parametrize(
    ("mode", "unused"),
    [("f32", {"quantise"}), ("int8", {"activation", "dequantise"})],
)
@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("llama/llama-Q8_0", set()),
        ("gemma3/gemma3-Q8_0", set()),
        ("mixtral/mixtral-Q8_0", {"router", "activation", "quantise"}),
        ("qwen35/qwen35-Q8_0", DELTA_STAGES),
    ],
)
def test_every_operation_belongs_to_a_stage(data, team, name, own, mode, unused):
    """A profile leaves nothing out: each stage is seen, whether it is a task or a call."""
    stages = Stages()
    model = open_model(data / "tiny" / f"{name}.gguf", team, stages, mode=mode)
    feeder = Feeder(model, 64)
    stages.start()
    feeder.step({0: list(range(40))})
    records = stages.stop()
    if mode == "f32":
        own = own - {"quantise"}
    others = {*unused, "ffn_up", "router", "sampling", *DELTA_STAGES} - own
    expected = [stage for stage in STAGE_NAMES if stage not in others]
    assert expected == [record.name for record in records]


def test_logits_are_given_for_the_rows_asked_for(data, team):
    """A prefill of two sequences gives one row each, the same as among all rows; none if none."""
    model = open_model(data / "tiny" / "llama" / "llama-F16.gguf", team)
    parts = {0: [5, 6, 7, 8], 1: [9, 10]}
    every = Feeder(model, 16, 2).step(parts)
    last = Feeder(model, 16, 2).step(parts, [3, 5])
    assert (2, model.config.vocab_size) == last.shape
    assert np.array_equal(every[[3, 5]], last)
    assert (0, model.config.vocab_size) == Feeder(model, 16, 2).step(parts, []).shape


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("token_ids", 320, "outside the vocabulary"),
        ("token_ids", -1, "outside the vocabulary"),
        ("positions", 512, "past the rotary tables"),
        ("logit_rows", 2, "outside the batch"),
    ],
)
def test_indices_that_kernels_would_follow_blindly_are_refused(data, team, field, value, message):
    """Our own bugs stop before a kernel reads outside its arrays."""
    model = open_model(data / "tiny" / "llama" / "llama-F16.gguf", team)
    feeder = Feeder(model, 16)
    batch = feeder.batch({0: [5, 6]})
    getattr(batch, field)[-1] = value
    with pytest.raises(AssertionError, match=message):
        model.forward(batch, feeder.kv)

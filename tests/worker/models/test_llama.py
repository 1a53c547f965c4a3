"""Llama against its naive twin, with every optional feature of the architecture."""

import numpy as np
import pytest

from tests.worker.models import naive_llama, tiny_llama
from tests.worker.models.feeding import logits_of, open_model
from worker.errors import GGUFError

IDS = [3, 1, 4, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33]
HEADS = {"heads": tiny_llama.HEADS, "kv_heads": tiny_llama.KV_HEADS}
FEATURES = {
    "plain": ({}, {}),
    "rotary base": ({"rope.freq_base": 500.0}, {"base": 500.0}),
    "half the head rotated": ({"rope.dimension_count": 4}, {"rotated": 4}),
    "linear scaling": (
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        {"factor": 4.0},
    ),
    "linear scaling, type left out": ({"rope.scaling.factor": 4.0}, {"factor": 4.0}),
    "linear scaling, older key": ({"rope.scale_linear": 2.0}, {"factor": 2.0}),
    "scaling switched off": ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, {}),
    "sliding window": ({"attention.sliding_window": 5}, {"window": 5}),
    "sliding window, unused": ({"attention.sliding_window": 0}, {}),
    "sizes given layer by layer": (
        {
            "attention.head_count": [tiny_llama.HEADS] * 2,
            "attention.head_count_kv": [tiny_llama.KV_HEADS] * 2,
            "feed_forward_length": [tiny_llama.FEED_FORWARD] * 2,
        },
        {},
    ),
    "larger eps": ({"attention.layer_norm_rms_epsilon": 0.125}, {"eps": 0.125}),
}


def _check(path, team, weights, keys, arguments):
    metadata = tiny_llama.keys() | {f"llama.{name}": value for name, value in keys.items()}
    model = open_model(tiny_llama.write(path, metadata, weights), team)
    expected = naive_llama.logits(weights, IDS, **HEADS, **arguments)
    np.testing.assert_allclose(expected, logits_of(model, IDS, 7), atol=2e-4)


@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_features_of_the_metadata(feature, tmp_path, team):
    """Each key changes the computation exactly as in the twin."""
    keys, arguments = FEATURES[feature]
    _check(tmp_path / "model.gguf", team, tiny_llama.tensors(), keys, arguments)


def test_features_are_visible():
    """Every key that is not neutral moves the logits far beyond the tolerance."""
    weights = tiny_llama.tensors()
    plain = naive_llama.logits(weights, IDS, **HEADS)
    for feature, (_, arguments) in FEATURES.items():
        if arguments:
            moved = np.abs(plain - naive_llama.logits(weights, IDS, **HEADS, **arguments)).max()
            assert moved > 0.01, feature


@pytest.mark.parametrize(
    "names",
    [
        ["attn_q", "attn_k", "attn_v"],
        ["attn_k"],
        ["attn_output"],
        ["ffn_gate", "ffn_up", "ffn_down"],
        ["ffn_up"],
    ],
)
def test_biases_are_added(names, tmp_path, team):
    """Biases of stacked projections, also when only one part has any."""
    weights = tiny_llama.tensors()
    random = np.random.default_rng(5)
    for layer in range(tiny_llama.LAYERS):
        for name in names:
            size = len(weights[f"blk.{layer}.{name}.weight"])
            weights[f"blk.{layer}.{name}.bias"] = random.standard_normal(size, np.float32)
    _check(tmp_path / "model.gguf", team, weights, {}, {})


def test_an_output_head_of_its_own(tmp_path, team):
    """output.weight takes the place of the embedding."""
    weights = tiny_llama.tensors()
    shape = weights["token_embd.weight"].shape
    weights["output.weight"] = np.random.default_rng(6).standard_normal(shape, np.float32)
    _check(tmp_path / "model.gguf", team, weights, {}, {})


def test_rotary_divisors(tmp_path, team):
    """rope_freqs.weight divides the frequencies."""
    weights = tiny_llama.tensors()
    divisors = np.array([1.0, 2.0, 8.0, 4.0], np.float32)
    weights["rope_freqs.weight"] = divisors
    _check(tmp_path / "model.gguf", team, weights, {}, {"divisors": divisors})


def test_layers_that_guess_further_tokens_are_left_out(tmp_path, team):
    """They stand behind the others, and say nothing about the next token."""
    weights = tiny_llama.tensors()
    expected = naive_llama.logits(weights, IDS, **HEADS)
    for name in ("attn_norm.weight", "nextn.eh_proj.weight"):
        weights[f"blk.{tiny_llama.LAYERS}.{name}"] = np.full((4, 4), np.nan, np.float32)
    count = tiny_llama.LAYERS + 1
    keys = {
        "llama.block_count": count,
        "llama.nextn_predict_layers": 1,
        "llama.attention.head_count_kv": [tiny_llama.KV_HEADS] * count,
    }
    path = tiny_llama.write(tmp_path / "model.gguf", tiny_llama.keys() | keys, weights)
    model = open_model(path, team)
    assert tiny_llama.LAYERS == model.config.num_layers
    np.testing.assert_allclose(expected, logits_of(model, IDS), atol=2e-4)
    none = tiny_llama.keys() | keys | {"llama.nextn_predict_layers": count}
    path = tiny_llama.write(tmp_path / "none.gguf", none, weights)
    with pytest.raises(GGUFError, match=r"nextn_predict_layers is 3, but llama\.block_count is 3"):
        open_model(path, team)


def test_a_redundant_tensor_of_old_converters_is_ignored(tmp_path, team):
    """attn_rot_embd.weight says nothing that the metadata do not."""
    weights = tiny_llama.tensors()
    weights["blk.0.attn_rot_embd.weight"] = np.ones(4, np.float32)
    model = open_model(tiny_llama.write(tmp_path / "model.gguf", tiny_llama.keys(), weights), team)
    del weights["blk.0.attn_rot_embd.weight"]
    expected = naive_llama.logits(weights, IDS, **HEADS)
    np.testing.assert_allclose(expected, logits_of(model, IDS), atol=2e-4)

"""Hyperparameters: what a file says, and every way in which it can be wrong."""

import math
import re

import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import logits_of, open_model
from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import GGUFFile
from worker.models.decoder import layer_groups
from worker.models.registry import SUPPORTED_ARCHITECTURES, model_config
from worker.models.rope_config import RopeConfig

REQUIRED = [
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
]


def _file(tmp_path, keys=None, weights=None, drop=(), architecture="llama"):
    own = {f"{architecture}.{name}": value for name, value in (keys or {}).items()}
    tensors = {k: v for k, v in (tiny_llama.tensors() | (weights or {})).items() if k not in drop}
    metadata = tiny_llama.keys(architecture) | own
    return tiny_llama.write(tmp_path / "model.gguf", metadata, tensors, architecture)


def test_a_sound_file(tmp_path):
    """Every field of a small llama."""
    config = model_config(GGUFFile.open(_file(tmp_path)))
    assert "llama" == config.architecture
    assert (2, 32, 48, 4, 2, 8, 40, 64) == (
        config.num_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.vocab_size,
        config.context_length,
    )
    assert RopeConfig(10_000.0, 8, "pairs", 1.0) == config.rope
    assert (8**-0.5, 1.0, None, None) == (
        config.attention_scale,
        config.embedding_scale,
        config.sliding_window,
        config.local_rope,
    )
    assert config.tied_embeddings


@pytest.mark.parametrize(("tokens", "expected"), [([f"t{i}" for i in range(37)], 37), (None, 40)])
def test_rows_past_the_tokens_are_padding(tmp_path, tokens, expected):
    """The tokenizer says how many tokens there are; without one, all rows are tokens."""
    metadata = tiny_llama.keys() | {"tokenizer.ggml.tokens": tokens}
    path = tiny_llama.write(tmp_path / "model.gguf", metadata, tiny_llama.tensors())
    config = model_config(GGUFFile.open(path))
    assert (40, expected) == (config.vocab_size, config.num_tokens)


def test_gemma3(data):
    """Window layers, the two rotary bases, the embedding scale and the layer groups."""
    config = model_config(GGUFFile.open(data / "tiny" / "gemma3" / "gemma3-F16.gguf"))
    assert (16, 16, 16, 16, 16, None, 16) == config.windows
    assert (1e6, 1e4, "halves") == (config.rope.base, config.local_rope.base, config.rope.layout)
    assert (8.0, 32**-0.5) == (config.embedding_scale, config.attention_scale)
    full, window = layer_groups(config)
    assert ("full", (5,), None) == (full.name, full.layers, full.window)
    assert ("window-16", (0, 1, 2, 3, 4, 6), 16) == (window.name, window.layers, window.window)


def test_gemma3_270m(gemma3_270m):
    """The real file leaves the local base out and has 32,768 positions."""
    config = model_config(GGUFFile.open(gemma3_270m))
    assert (18, 512, 1e4) == (config.num_layers, config.sliding_window, config.local_rope.base)
    assert [5, 11, 17] == [i for i, window in enumerate(config.windows) if window is None]
    assert float(np.sqrt(np.float32(640))) == config.embedding_scale


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_key_is_named(tmp_path, name):
    """Nothing is guessed."""
    path = _file(tmp_path, {name: None})
    with pytest.raises(GGUFError, match=rf"model\.gguf.*llama\.{name}.*missing"):
        model_config(GGUFFile.open(path))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attention.head_count": 0}, "attention.head_count.* is 0"),
        ({"attention.head_count": 3}, "embedding_length.* is 32, not a multiple of .*, 3"),
        ({"attention.head_count_kv": 3}, "is 4, not a multiple of .*head_count_kv, 3"),
        ({"attention.head_count": 32}, "a head has 1 values, an odd number"),
        ({"attention.key_length": 7}, "a head has 7 values"),
        ({"attention.layer_norm_rms_epsilon": math.nan}, "layer_norm_rms_epsilon.* is nan"),
        ({"attention.layer_norm_rms_epsilon": math.inf}, "layer_norm_rms_epsilon.* is inf"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon.* is -1"),
        ({"attention.layer_norm_rms_epsilon": "small"}, "layer_norm_rms_epsilon.* a number"),
        ({"context_length": 0}, "context_length.* is 0"),
        ({"context_length": (1 << 32) - 1}, "context_length.* is 4294967295"),
        ({"embedding_length": "32"}, "embedding_length.* an integer"),
        ({"feed_forward_length": 0}, "feed_forward_length.* is 0"),
        ({"rope.freq_base": 0.0}, "rope.freq_base.* is 0"),
        ({"rope.freq_base": -5.0}, "rope.freq_base.* is -5"),
        ({"rope.dimension_count": 3}, "rope.dimension_count.* is 3"),
        ({"rope.dimension_count": 10}, "rope.dimension_count.* is 10"),
        ({"rope.scaling.factor": -2.0}, "rope.scaling.factor.* is -2"),
        ({"rope.scaling.factor": math.nan}, "rope.scaling.factor.* is nan"),
        ({"block_count": 0}, "block_count.* is 0"),
        ({"block_count": 3}, r"block_count is 3, .*blk\.2\."),
        ({"block_count": (1 << 32) - 1}, r"block_count is 4294967295, .*blk\.2\."),
        ({"block_count": 1}, r"block_count is 1, .*blk\.1\."),
        ({"attention.head_count_kv": [2, 2, 2]}, "head_count_kv has 3 values, .* 2 layers"),
        ({"attention.head_count": [0, 0]}, "head_count.* is 0"),
        ({"rope.scaling.factor": 1e-300}, "rope.scaling.factor is 1e-300"),
    ],
)
def test_impossible_values_are_refused(tmp_path, keys, message):
    """The message names file, key and value, before anything is allocated."""
    path = _file(tmp_path, keys)
    with pytest.raises(GGUFError, match=rf"model\.gguf.*{message}"):
        model_config(GGUFFile.open(path))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rope.scaling.type": "dynamic"}, "'dynamic'; supported: none, linear, yarn, longrope"),
        ({"attention.causal": False}, "attention.causal is False"),
        ({"no.such.key": [1, 2]}, r"no.such.key is \[1, 2\]"),
        ({"expert_gating_func": 2}, "expert_gating_func is 2"),
        ({"attention.value_length": 4}, "value_length is 4 but keys have 8"),
        ({"attention.scale": 0.5}, "attention.scale is 0.5"),
        ({"logit_scale": 16.0}, "logit_scale is 16"),
        ({"attention.clamp_kqv": 8.0}, "clamp_kqv is 8"),
        ({"attention.head_count_kv": [2, 1]}, "head_count_kv differs between layers, 1 to 2"),
        ({"feed_forward_length": [48, 96]}, "feed_forward_length differs between layers"),
    ],
)
def test_variants_that_are_not_computed_are_refused(tmp_path, keys, message):
    """Never run as something else."""
    path = _file(tmp_path, keys)
    with pytest.raises(UnsupportedModelError, match=message):
        model_config(GGUFFile.open(path))


@pytest.mark.parametrize("key", ["rope.scaling.type", "no.such.key"])
def test_a_long_value_is_one_short_line(tmp_path, key):
    """Whatever a stranger wrote."""
    path = _file(tmp_path, {key: "long\n" * 100_000})
    with pytest.raises(UnsupportedModelError) as raised:
        model_config(GGUFFile.open(path))
    assert len(str(raised.value)) < 500
    assert "\n" not in str(raised.value)


WRONG = [
    -1, 0, 1, 3, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, -(2**63),
    -1.0, 0.0, 0.5, 1e30, 1e300, 1e-300, math.nan, math.inf, -math.inf,
    "", "text", True, False, [0, 0], [1, 2], [4, 4], [-1, -1], [2**31 - 1, 1], [0.5, 0.5],
    [True, False], [True, True, True], ["a", "b"], list(range(100)),
]  # fmt: skip
KEYS = {
    "llama": [],
    "gemma3": [
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "rope.freq_base_swa",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    ],
}
SHARED_KEYS = [
    *REQUIRED,
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scale_linear",
    "expert_used_count",
    "embedding_scale",
    "logit_scale",
    "rope.scaling.attn_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_log_multiplier",
    "attention.causal",
    "no.such.key",
]


@pytest.mark.parametrize(
    ("architecture", "key"),
    [(name, key) for name, own in KEYS.items() for key in dict.fromkeys(SHARED_KEYS + own)],
)
def test_any_value_is_refused_by_name_or_computed(tmp_path, team, architecture, key):
    """Whatever a key holds: one line with file and key, or a model that gives finite logits."""
    weights = tiny_llama.gemma_norms() if architecture == "gemma3" else {}
    own = {"attention.sliding_window": 4} if architecture == "gemma3" else {}
    for value in WRONG:
        path = _file(tmp_path, own | {key: value}, weights, architecture=architecture)
        message = _refusal(path, team)
        # Sizes that nothing but the tensors contradict are told by the tensor.
        named = rf"[^\n]*model\.gguf[^\n]*({re.escape(key)}|wrong shape: expected)[^\n]*"
        assert message is None or re.fullmatch(named, message), (value, message)


def _refusal(path, team):
    """Why a file is refused; None when it gives finite logits."""
    try:
        model = open_model(path, team, matmul="compiled")
    except (GGUFError, UnsupportedModelError) as error:
        return str(error)
    assert np.isfinite(logits_of(model, [3, 1, 4][: model.config.context_length])).all()
    return None


def test_gemma3_windows_layer_by_layer(tmp_path):
    """A pattern may be a boolean for each layer instead of a period."""
    keys = {
        "attention.sliding_window": 4,
        "attention.sliding_window_pattern": [False, True],
    }
    path = _file(tmp_path, keys, tiny_llama.gemma_norms(), architecture="gemma3")
    assert (None, 4) == model_config(GGUFFile.open(path)).windows


def test_an_unknown_architecture_lists_the_supported(tmp_path):
    """The cause is named, and nothing is said of damage."""
    path = _file(tmp_path, architecture="llama9")
    supported = ", ".join(sorted(SUPPORTED_ARCHITECTURES))
    with pytest.raises(UnsupportedModelError, match=f"'llama9'.*supported: {supported}$"):
        model_config(GGUFFile.open(path))


@pytest.mark.parametrize(
    ("case", "error", "words"),
    [
        ("133-head-count-missing", GGUFError, ["llama.attention.head_count"]),
        ("139-more-tokens-than-rows", GGUFError, ["token_embd.weight", "304", "300"]),
        ("145-embedding-transposed", GGUFError, ["token_embd.weight", "[300, 64]", "[64, 300]"]),
        ("147-block-count-huge", GGUFError, ["block_count", "blk.2."]),
        ("151-architecture-unknown", UnsupportedModelError, ["llama9", "llama"]),
    ],
)
def test_trouble_cases(case, error, words, data):
    """Files from the field: one line that names file, thing and values."""
    path = data / "cases" / case / "model.gguf"
    with pytest.raises(error) as raised:
        model_config(GGUFFile.open(path))
    message = str(raised.value)
    assert [] == [word for word in ["model.gguf", *words] if word not in message]
    assert "\n" not in message


@pytest.mark.parametrize(
    "name",
    ["output_norm.weight", "blk.1.attn_v.weight", "blk.0.ffn_norm.weight", "token_embd.weight"],
)
def test_a_missing_tensor_is_named(tmp_path, name, team):
    """At loading, before a token is computed."""
    path = _file(tmp_path, drop=[name])
    with pytest.raises(GGUFError, match=rf"{name}.* missing"):
        open_model(path, team)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("blk.0.attn_q.weight", (32, 16)),
        ("blk.1.ffn_down.weight", (48, 32)),
        ("blk.0.attn_norm.weight", (31,)),
        ("blk.0.attn_q.bias", (16,)),
        ("output.weight", (39, 32)),
        ("rope_freqs.weight", (3,)),
    ],
)
def test_a_wrong_shape_is_named(tmp_path, name, shape, team):
    """With the shape expected and the one found."""
    path = _file(tmp_path, weights={name: np.ones(shape, np.float32)})
    with pytest.raises(GGUFError, match=rf"{name}.*expected \[.*found \[{shape[0]}"):
        open_model(path, team)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_impossible_rotary_divisors_are_refused(tmp_path, value, team):
    """They divide frequencies."""
    weights = {"rope_freqs.weight": np.array([1, 2, value, 1], np.float32)}
    with pytest.raises(GGUFError, match=r"rope_freqs\.weight holds"):
        open_model(_file(tmp_path, weights=weights), team)


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.ffn_gate_inp.weight",
        "blk.1.attn_q_norm.weight",
        "output.bias",
        "blk.0.attn_sinks.weight",
    ],
)
def test_a_tensor_without_a_place_is_refused(tmp_path, name, team):
    """Leaving it out would change the results without a word."""
    path = _file(tmp_path, weights={name: np.ones(8, np.float32)})
    with pytest.raises(UnsupportedModelError, match=f"{name}.* no place in architecture llama"):
        open_model(path, team)

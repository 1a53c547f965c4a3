"""Files of qwen35: what their keys may say, and weights in any type."""

import re

import numpy as np
import pytest

from tests.worker.models import tiny_llama
from tests.worker.models.feeding import logits_of, open_model
from worker.errors import GGUFError, UnsupportedModelError

IDS = [3, 1, 4, 15, 9, 26, 5, 35]
HEADS, KV_HEADS, DIM, HIDDEN = 2, 1, 16, tiny_llama.HIDDEN
KEY_HEADS, VALUE_HEADS, DELTA_DIM, KERNEL = 1, 2, 8, 4
CHANNELS = (2 * KEY_HEADS + VALUE_HEADS) * DELTA_DIM
WRONG = [0, 1, -1, 3, 2**31 - 1, 2**40, 0.5, "x", [1, 2], [True, False, True], True]
KEYS = [
    "ssm.conv_kernel",
    "ssm.state_size",
    "ssm.group_count",
    "ssm.time_step_rank",
    "ssm.inner_size",
    "full_attention_interval",
    "attention.recurrent_layers",
    "nextn_predict_layers",
]


def keys(**changed):
    """Metadata of a sound file of one layer of each kind."""
    own = {
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": DIM,
        "attention.value_length": DIM,
        "rope.dimension_count": DIM // 2,
        "rope.dimension_sections": [2, 1, 1, 0],
        "full_attention_interval": 2,
        "ssm.conv_kernel": KERNEL,
        "ssm.state_size": DELTA_DIM,
        "ssm.group_count": KEY_HEADS,
        "ssm.time_step_rank": VALUE_HEADS,
        "ssm.inner_size": VALUE_HEADS * DELTA_DIM,
    }
    metadata = tiny_llama.keys("qwen35") | {f"qwen35.{name}": v for name, v in own.items()}
    return metadata | {f"qwen35.{name}": value for name, value in changed.items()}


def tensors():
    """Weights of that file."""
    random, ffn = np.random.default_rng(0), tiny_llama.FEED_FORWARD
    both = {
        "attn_norm.weight": (HIDDEN,),
        "post_attention_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (ffn, HIDDEN),
        "ffn_up.weight": (ffn, HIDDEN),
        "ffn_down.weight": (HIDDEN, ffn),
    }
    delta = {
        "attn_qkv.weight": (CHANNELS, HIDDEN),
        "attn_gate.weight": (VALUE_HEADS * DELTA_DIM, HIDDEN),
        "ssm_beta.weight": (VALUE_HEADS, HIDDEN),
        "ssm_alpha.weight": (VALUE_HEADS, HIDDEN),
        "ssm_conv1d.weight": (CHANNELS, KERNEL),
        "ssm_a": (VALUE_HEADS,),
        "ssm_dt.bias": (VALUE_HEADS,),
        "ssm_norm.weight": (DELTA_DIM,),
        "ssm_out.weight": (HIDDEN, VALUE_HEADS * DELTA_DIM),
    }
    attention = {
        "attn_q.weight": (2 * HEADS * DIM, HIDDEN),
        "attn_k.weight": (KV_HEADS * DIM, HIDDEN),
        "attn_v.weight": (KV_HEADS * DIM, HIDDEN),
        "attn_q_norm.weight": (DIM,),
        "attn_k_norm.weight": (DIM,),
        "attn_output.weight": (HIDDEN, HEADS * DIM),
    }
    shapes = {
        "token_embd.weight": (tiny_llama.VOCABULARY, HIDDEN),
        "output_norm.weight": (HIDDEN,),
        **{f"blk.0.{name}": shape for name, shape in (both | delta).items()},
        **{f"blk.1.{name}": shape for name, shape in (both | attention).items()},
    }
    made = {name: 0.3 * random.standard_normal(s, np.float32) for name, s in shapes.items()}
    return made | {"blk.0.ssm_a": -np.abs(made["blk.0.ssm_a"])}


def write(path, metadata, weights=None):
    """A file of these."""
    return tiny_llama.write(path, metadata, weights or tensors(), architecture="qwen35")


def refusal(path, team):
    """Why a file is refused; None when it gives finite logits."""
    try:
        model = open_model(path, team, matmul="compiled")
    except (GGUFError, UnsupportedModelError) as error:
        return str(error)
    assert np.isfinite(logits_of(model, IDS)).all()
    return None


@pytest.mark.parametrize("key", KEYS)
def test_any_value_is_refused_by_name_or_computed(key, tmp_path, team):
    """Whatever a key holds: one line with file and key or tensor, or finite logits."""
    named = rf"[^\n]*model\.gguf[^\n]*({re.escape(key)}|tensor blk|recurrent)[^\n]*"
    for value in WRONG:
        message = refusal(write(tmp_path / "model.gguf", keys(**{key: value})), team)
        assert message is None or re.fullmatch(named, message), (value, message)


def test_both_modes_agree_on_floats(tmp_path, team):
    """Heads of whole row blocks are packed piece by piece, in another order than the file's."""
    path = write(tmp_path / "model.gguf", keys())
    exact = logits_of(open_model(path, team), IDS)
    model = open_model(path, team, mode="int8")
    np.testing.assert_allclose(exact, logits_of(model, IDS), atol=1e-4)
    assert () == model.dequant_cache.units


def test_the_key_of_layers_says_the_same_as_the_interval(tmp_path, team):
    """And wins where they differ."""
    by_interval = logits_of(open_model(write(tmp_path / "a", keys()), team), IDS)
    flags = {"attention.recurrent_layers": [True, False], "full_attention_interval": 4}
    by_flags = logits_of(open_model(write(tmp_path / "b", keys(**flags)), team), IDS)
    assert np.array_equal(by_interval, by_flags)


def test_a_model_without_attention_is_refused(tmp_path, team):
    """There would be no block to count rows by."""
    path = write(tmp_path / "model.gguf", keys(full_attention_interval=4))
    with pytest.raises(UnsupportedModelError, match="all 2 layers are recurrent"):
        open_model(path, team)

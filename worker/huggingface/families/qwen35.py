"""Qwen 3.5, text model: gated delta nets between layers of full attention.

GGUF numbers the value heads of a delta net so that those of one key head are far apart; a
checkpoint has them side by side.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worker.errors import CheckpointError
from worker.huggingface.config import Config, Setting, field
from worker.huggingface.family import Family, Targets
from worker.huggingface.readings import Columns, Computed, Picked, Reading, Stored, values_of
from worker.huggingface.rope import rope_keys, rope_parameters

from .decoder import ATTENTION, ENDS, GATED_MLP, KEYS, layer, plus_one

_SECTIONS = [11, 11, 10]  # of the rotated pairs, for positions in time and space


def _inner_size(config: Config) -> int:
    return config.integer("linear_value_head_dim") * config.integer("linear_num_value_heads")


def _recurrent(config: Config) -> list[bool]:
    count = config.integer("num_hidden_layers")
    if config.get("layer_types") is None:
        every = config.integer("full_attention_interval", 4)
        return [(number + 1) % every != 0 for number in range(count)]
    return [kind == "linear_attention" for kind in config.names("layer_types", count)]


def _sections(config: Config) -> object:
    sections = rope_parameters(config).get("mrope_section", _SECTIONS)
    if not isinstance(sections, list) or len(sections) != 3:
        raise config.wrong("mrope_section", sections, "a list of 3 integers")
    return [*sections, 0]


_DELTA_KEYS: Mapping[str, Setting] = {
    "ssm.conv_kernel": field("linear_conv_kernel_dim"),
    "ssm.state_size": field("linear_key_head_dim"),
    "ssm.group_count": field("linear_num_key_heads"),
    "ssm.time_step_rank": field("linear_num_value_heads"),
    "ssm.inner_size": _inner_size,
    "attention.recurrent_layers": _recurrent,
    "full_attention_interval": field("full_attention_interval", 4),
    "rope.dimension_sections": _sections,
}


def _order(stored: Stored, config: Config, count: int, width: int) -> NDArray[np.int64]:
    """The numbers of ``count`` values, the last of them value heads of this width."""
    keys = config.integer("linear_num_key_heads")
    values = config.integer("linear_num_value_heads")
    first = count - values * width
    if values % keys or first < 0:
        raise CheckpointError(
            f"{stored.file.path}: a tensor of a delta net has the shape {list(stored.shape)}: not "
            f"{values} value heads for {keys} key heads; copy or download the folder again"
        )
    heads = np.arange(first, count).reshape(keys, values // keys, width)
    return np.concatenate([np.arange(first), heads.swapaxes(0, 1).reshape(-1)])


def _wide_rows(stored: Stored, config: Config) -> Reading:
    width = config.integer("linear_value_head_dim")
    shape = (stored.shape[0], stored.shape[-1])  # a convolution has a dimension of 1 between
    return Picked(stored, _order(stored, config, shape[0], width), shape)


def _rows(stored: Stored, config: Config) -> Reading:
    return Picked(stored, _order(stored, config, stored.shape[0], 1), stored.shape)


def _columns(stored: Stored, config: Config) -> Reading:
    width = config.integer("linear_value_head_dim")
    return Columns(stored, _order(stored, config, stored.shape[-1], width))


def _decay(stored: Stored, config: Config) -> Reading:
    values = -np.exp(values_of(stored).astype(np.float64)).astype(np.float32)
    return Computed(values[_order(stored, config, len(values), 1)])


_LAYER: Mapping[str, Targets] = {
    "input_layernorm.weight": ("attn_norm.weight", plus_one),
    "post_attention_layernorm.weight": ("post_attention_norm.weight", plus_one),
    "self_attn.q_norm.weight": ("attn_q_norm.weight", plus_one),
    "self_attn.k_norm.weight": ("attn_k_norm.weight", plus_one),
    "linear_attn.in_proj_qkv.weight": ("attn_qkv.weight", _wide_rows),
    "linear_attn.in_proj_z.weight": ("attn_gate.weight", _wide_rows),
    "linear_attn.in_proj_a.weight": ("ssm_alpha.weight", _rows),
    "linear_attn.in_proj_b.weight": ("ssm_beta.weight", _rows),
    "linear_attn.conv1d.weight": ("ssm_conv1d.weight", _wide_rows),
    "linear_attn.A_log": ("ssm_a", _decay),
    "linear_attn.dt_bias": ("ssm_dt.bias", _rows),
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": ("ssm_out.weight", _columns),
}

QWEN35 = Family(
    architecture="qwen35",
    classes=("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"),
    keys={**KEYS, **_DELTA_KEYS},
    key_groups=(rope_keys,),
    tensors={
        **ENDS,
        "model.norm.weight": ("output_norm.weight", plus_one),
        **layer({**_LAYER, **ATTENTION, **GATED_MLP}),
    },
    fixed={"hidden_act": ("silu",)},
    prefixes={"model.language_model.": "model."},
    # Guesses of further tokens are not used.
    other_parts=("model.visual.", "mtp."),
)

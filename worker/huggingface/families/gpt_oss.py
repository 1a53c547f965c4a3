"""gpt-oss: windows in every other layer, attention sinks, experts with biases, MXFP4 or BF16."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from worker.errors import UnsupportedModelError
from worker.huggingface.config import Config, field
from worker.huggingface.family import Family, Make, MakeMxfp4
from worker.huggingface.mxfp4 import Mxfp4
from worker.huggingface.readings import Columns, Reading, Stored, Transposed
from worker.huggingface.rope import rope_keys

from .decoder import ATTENTION, ENDS, KEYS, layer, with_biases
from .mixture import EXPERT_KEYS


def _rope(config: Config) -> Mapping[str, object]:
    return rope_keys(config, default_base=150000.0)


def _check_layers(config: Config) -> Mapping[str, object]:
    """Check that every other layer has a window, the first one included.

    Raises:
        UnsupportedModelError: it is another pattern, which GGUF has no key for.
    """
    count = config.integer("num_hidden_layers")
    expected = ["sliding_attention", "full_attention"] * count
    if config.get("layer_types", expected[:count]) != expected[:count]:
        raise UnsupportedModelError(
            f"{config.path}: field layer_types is another pattern than sliding_attention and "
            "full_attention in turn, which is not computed; take another model"
        )
    return {}


def _outputs(start: int, step: int) -> Make:
    """Outputs of experts stored [experts, inputs, outputs]."""

    def make(stored: Stored, config: Config) -> Reading:
        return Transposed(stored, start, step)

    return make


def _outputs_mxfp4(start: int) -> MakeMxfp4:
    """Every other output of experts in MXFP4, stored [experts, outputs, inputs]."""

    def make(stored: Mxfp4) -> Reading:
        return replace(stored, start=start, step=2)

    return make


def _every_other(start: int) -> Make:
    def make(stored: Stored, config: Config) -> Reading:
        return Columns(stored, np.arange(start, stored.shape[-1], 2))

    return make


def _as_it_is(stored: Mxfp4) -> Reading:
    return stored


_EXPERTS = "model.layers.{layer}.mlp.experts."
_BLOCK = "blk.{layer}."

GPT_OSS = Family(
    architecture="gpt-oss",
    classes=("GptOssForCausalLM",),
    keys={
        **KEYS,
        **EXPERT_KEYS,
        "attention.sliding_window": field("sliding_window"),
        "expert_feed_forward_length": field("intermediate_size"),
    },
    key_groups=(_rope, _check_layers),
    tensors={
        **ENDS,
        **layer(
            {
                "input_layernorm.weight": "attn_norm.weight",
                "post_attention_layernorm.weight": "post_attention_norm.weight",
                "self_attn.sinks": "attn_sinks.weight",
                **ATTENTION,
                **with_biases({"mlp.router.weight": "ffn_gate_inp.weight"}),
                # Gates and ups in turn.
                "mlp.experts.gate_up_proj": {
                    "ffn_gate_exps.weight": _outputs(0, 2),
                    "ffn_up_exps.weight": _outputs(1, 2),
                },
                "mlp.experts.gate_up_proj_bias": {
                    "ffn_gate_exps.bias": _every_other(0),
                    "ffn_up_exps.bias": _every_other(1),
                },
                "mlp.experts.down_proj": ("ffn_down_exps.weight", _outputs(0, 1)),
                "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
            }
        ),
    },
    mxfp4={
        f"{_EXPERTS}gate_up_proj": {
            f"{_BLOCK}ffn_gate_exps.weight": _outputs_mxfp4(0),
            f"{_BLOCK}ffn_up_exps.weight": _outputs_mxfp4(1),
        },
        f"{_EXPERTS}down_proj": {f"{_BLOCK}ffn_down_exps.weight": _as_it_is},
    },
    fixed={"hidden_act": ("silu",), "swiglu_alpha": (1.702,), "swiglu_limit": (7.0,)},
)

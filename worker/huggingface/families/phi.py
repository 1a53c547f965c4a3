"""Phi 3, 3.5 mini and 4 mini: query, key and value in one projection, gate and up in another."""

import math
from collections.abc import Mapping

from worker.huggingface.config import Config
from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys, rope_kind, rope_parameters, rope_tensors

from .decoder import ENDS, KEYS, PRE_NORMS, layer, with_biases


def _original_context(config: Config) -> int:
    whole = config.integer("max_position_embeddings")
    parameters = rope_parameters(config)
    own = config.integer("original_max_position_embeddings", whole)
    return parameters.integer("original_max_position_embeddings", own)


def _window(config: Config) -> object:
    """Positions that are seen, 0 for all."""
    return config.get("sliding_window", 0)


def _long_keys(config: Config) -> Mapping[str, object]:
    """What longrope multiplies attention by."""
    parameters = rope_parameters(config)
    if rope_kind(parameters) != "longrope":
        return {}
    original = _original_context(config)
    longer = config.integer("max_position_embeddings") / original
    scale = parameters.number("factor", longer)
    own = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    return {"rope.scaling.attn_factor": parameters.number("attention_factor", own)}


PHI3 = Family(
    architecture="phi3",
    classes=("Phi3ForCausalLM",),
    keys={
        **KEYS,
        "rope.scaling.original_context_length": _original_context,
        "attention.sliding_window": _window,
    },
    key_groups=(rope_keys, _long_keys),
    tensors={
        **ENDS,
        **layer(
            {
                **PRE_NORMS,
                **with_biases(
                    {
                        "self_attn.qkv_proj.weight": "attn_qkv.weight",
                        "self_attn.o_proj.weight": "attn_output.weight",
                        "mlp.gate_up_proj.weight": "ffn_up.weight",
                        "mlp.down_proj.weight": "ffn_down.weight",
                    }
                ),
            }
        ),
    },
    extra=rope_tensors,
    fixed={"hidden_act": ("silu",)},
)

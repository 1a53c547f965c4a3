"""StableLM 2: LayerNorm, a quarter of each head rotates, one residual or two in a row."""

from worker.huggingface.config import Config, field
from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys

from .decoder import (
    ATTENTION,
    GATED_MLP,
    LAYER_NORM_ENDS,
    LAYER_NORM_KEYS,
    PRE_NORMS,
    layer,
    with_biases,
)


def _parallel(config: Config) -> object:
    return config.get("use_parallel_residual", False)


STABLELM = Family(
    architecture="stablelm",
    classes=("StableLmForCausalLM",),
    keys={
        **LAYER_NORM_KEYS,
        "attention.layer_norm_epsilon": field("layer_norm_eps"),
        "use_parallel_residual": _parallel,
    },
    key_groups=(rope_keys,),
    tensors={
        **LAYER_NORM_ENDS,
        **layer(
            {
                **with_biases(PRE_NORMS),
                **ATTENTION,
                **GATED_MLP,
                # A norm for each head, one below the other.
                "self_attn.q_layernorm.norms.{expert}.weight": "attn_q_norm.weight",
                "self_attn.k_layernorm.norms.{expert}.weight": "attn_k_norm.weight",
            }
        ),
    },
    fixed={"hidden_act": ("silu",)},
)

"""Granite 3: Llama with multipliers."""

from worker.huggingface.config import field
from worker.huggingface.family import Family
from worker.huggingface.rope import divisible_rope_keys, rope_tensors

from .decoder import ENDS, GATED_MLP, KEYS, PRE_NORMS, layer
from .llama import PAIRED_ATTENTION

GRANITE = Family(
    architecture="granite",
    classes=("GraniteForCausalLM",),
    keys={
        **KEYS,
        "attention.scale": field("attention_multiplier", 1.0),
        "embedding_scale": field("embedding_multiplier", 1.0),
        "residual_scale": field("residual_multiplier", 1.0),
        "logit_scale": field("logits_scaling", 1.0),
    },
    key_groups=(divisible_rope_keys,),
    tensors={**ENDS, **layer({**PRE_NORMS, **PAIRED_ATTENTION, **GATED_MLP})},
    extra=rope_tensors,
    fixed={"hidden_act": ("silu",)},
)

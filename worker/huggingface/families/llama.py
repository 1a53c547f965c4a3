"""Llama, Mistral and others of the same computation."""

from dataclasses import replace

from worker.huggingface.family import Family
from worker.huggingface.rope import divisible_rope_keys, rope_tensors

from .decoder import (
    ENDS,
    GATED_MLP,
    KEYS,
    PRE_NORMS,
    WINDOW_KEY,
    layer,
    paired,
    with_biases,
)

PAIRED_ATTENTION = with_biases(
    {
        "self_attn.q_proj.weight": ("attn_q.weight", paired("num_attention_heads")),
        "self_attn.k_proj.weight": ("attn_k.weight", paired("num_key_value_heads")),
        "self_attn.v_proj.weight": "attn_v.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
    }
)
"""Projections of attention whose heads GGUF has in another order."""


LLAMA = Family(
    architecture="llama",
    classes=("LlamaForCausalLM",),
    keys=KEYS,
    key_groups=(divisible_rope_keys,),
    tensors={**ENDS, **layer({**PRE_NORMS, **PAIRED_ATTENTION, **GATED_MLP})},
    extra=rope_tensors,
    fixed={"hidden_act": ("silu",)},
)

MISTRAL = replace(LLAMA, classes=("MistralForCausalLM",), keys={**KEYS, **WINDOW_KEY})

"""OLMo 2: norms behind attention and feed-forward, and over all queries and keys."""

from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys

from .decoder import ATTENTION, ENDS, GATED_MLP, HEAD_NORMS, KEYS, layer

OLMO2 = Family(
    architecture="olmo2",
    classes=("Olmo2ForCausalLM",),
    keys=KEYS,
    key_groups=(rope_keys,),
    tensors={
        **ENDS,
        **layer(
            {
                "post_attention_layernorm.weight": "post_attention_norm.weight",
                "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
                **ATTENTION,
                **HEAD_NORMS,
                **GATED_MLP,
            }
        ),
    },
    fixed={"hidden_act": ("silu",)},
)

"""Llama, Mistral and others of the same computation."""

from worker.huggingface.config import Config
from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys, rope_tensors

from .decoder import ENDS, GATED_MLP, KEYS, PRE_NORMS, layer, paired, with_biases

PAIRED_ATTENTION = with_biases(
    {
        "self_attn.q_proj.weight": ("attn_q.weight", paired("num_attention_heads")),
        "self_attn.k_proj.weight": ("attn_k.weight", paired("num_key_value_heads")),
        "self_attn.v_proj.weight": "attn_v.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
    }
)
"""Projections of attention whose heads GGUF has in another order."""


def whole_context(config: Config) -> int:
    """Positions for which a window over the last tokens makes no difference.

    The models that use this table attend to everything; a checkpoint with a window (Mistral 7B
    v0.1) is run up to that window, where both are the same.
    """
    context = config.integer("max_position_embeddings")
    if config.get("use_sliding_window") is False or config.get("sliding_window") is None:
        return context
    return min(context, config.integer("sliding_window"))


LLAMA = Family(
    architecture="llama",
    classes=("LlamaForCausalLM", "MistralForCausalLM"),
    keys={**KEYS, "context_length": whole_context},
    key_groups=(rope_keys,),
    tensors={**ENDS, **layer({**PRE_NORMS, **PAIRED_ATTENTION, **GATED_MLP})},
    extra=rope_tensors,
    fixed={"hidden_act": ("silu",)},
)

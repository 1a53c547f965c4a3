"""Phi 3, 3.5 mini and 4 mini: query, key and value in one projection, gate and up in another."""

from worker.huggingface.config import field
from worker.huggingface.family import Family
from worker.huggingface.rope import divisible_rope_keys, original_context, rope_tensors

from .decoder import ENDS, KEYS, PRE_NORMS, layer, with_biases

PHI3 = Family(
    architecture="phi3",
    classes=("Phi3ForCausalLM",),
    keys={
        **KEYS,
        "rope.scaling.original_context_length": original_context,
        "attention.sliding_window": field("sliding_window", 0),
    },
    key_groups=(divisible_rope_keys,),
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

"""Qwen 2, 2.5 and 3."""

from worker.huggingface.family import Family
from worker.huggingface.rope import rope_keys

from .decoder import ATTENTION, ENDS, GATED_MLP, HEAD_NORMS, KEYS, PRE_NORMS, layer, whole_context

QWEN2 = Family(
    architecture="qwen2",
    classes=("Qwen2ForCausalLM",),
    keys={**KEYS, "context_length": whole_context},
    key_groups=(rope_keys,),
    tensors={**ENDS, **layer({**PRE_NORMS, **ATTENTION, **GATED_MLP})},
    fixed={"hidden_act": ("silu",)},
)

QWEN3 = Family(
    architecture="qwen3",
    classes=("Qwen3ForCausalLM",),
    keys={**KEYS, "context_length": whole_context},
    key_groups=(rope_keys,),
    tensors={**ENDS, **layer({**PRE_NORMS, **ATTENTION, **HEAD_NORMS, **GATED_MLP})},
    fixed={"hidden_act": ("silu",)},
)

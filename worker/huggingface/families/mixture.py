"""Mixtures of experts: Mixtral and Qwen 3."""

from collections.abc import Mapping

from worker.errors import UnsupportedModelError
from worker.huggingface.config import Config, Setting, field
from worker.huggingface.family import Family
from worker.huggingface.rope import divisible_rope_keys, rope_keys, rope_tensors

from .decoder import ATTENTION, ENDS, HEAD_NORMS, KEYS, PRE_NORMS, WINDOW_KEY, layer, whole_context
from .llama import PAIRED_ATTENTION


def num_experts(config: Config) -> int:
    """Experts of a layer, under one of their two names."""
    name = "num_local_experts" if config.get("num_experts") is None else "num_experts"
    return config.integer(name)


EXPERT_KEYS: Mapping[str, Setting] = {
    "expert_count": num_experts,
    "expert_used_count": field("num_experts_per_tok"),
}
"""Sizes of a mixture."""


def _are_weights_normed(config: Config) -> object:
    """False when the weights of the experts chosen do not sum to 1; the default is left out."""
    normed = config.get("norm_topk_prob", False)
    return None if normed is True else normed


def _check_qwen3(config: Config) -> Mapping[str, object]:
    """Check that every layer is a mixture, which GGUF takes for granted.

    Raises:
        UnsupportedModelError: a field says otherwise.
    """
    expected: Mapping[str, tuple[object, ...]] = {
        "decoder_sparse_step": (None, 1),
        "mlp_only_layers": (None, []),
    }
    for name, allowed in expected.items():
        if config.get(name) not in allowed:
            raise UnsupportedModelError(
                f"{config.path}: field {name} is {config.get(name)}, expected {allowed[-1]}: other "
                "mixtures are not computed; take another model"
            )
    return {}


MIXTRAL = Family(
    architecture="llama",
    classes=("MixtralForCausalLM",),
    keys={**KEYS, **EXPERT_KEYS, **WINDOW_KEY},
    key_groups=(divisible_rope_keys,),
    extra=rope_tensors,
    tensors={
        **ENDS,
        **layer(
            {
                **PRE_NORMS,
                **PAIRED_ATTENTION,
                "block_sparse_moe.gate.weight": "ffn_gate_inp.weight",
                "block_sparse_moe.experts.{expert}.w1.weight": "ffn_gate_exps.weight",
                "block_sparse_moe.experts.{expert}.w2.weight": "ffn_down_exps.weight",
                "block_sparse_moe.experts.{expert}.w3.weight": "ffn_up_exps.weight",
            }
        ),
    },
    fixed={"hidden_act": ("silu",)},
)

QWEN3_MOE = Family(
    architecture="qwen3moe",
    classes=("Qwen3MoeForCausalLM",),
    keys={
        **KEYS,
        **EXPERT_KEYS,
        "context_length": whole_context,
        "expert_feed_forward_length": field("moe_intermediate_size"),
        "expert_weights_norm": _are_weights_normed,
    },
    key_groups=(rope_keys, _check_qwen3),
    tensors={
        **ENDS,
        **layer(
            {
                **PRE_NORMS,
                **ATTENTION,
                **HEAD_NORMS,
                "mlp.gate.weight": "ffn_gate_inp.weight",
                "mlp.experts.{expert}.gate_proj.weight": "ffn_gate_exps.weight",
                "mlp.experts.{expert}.up_proj.weight": "ffn_up_exps.weight",
                "mlp.experts.{expert}.down_proj.weight": "ffn_down_exps.weight",
            }
        ),
    },
    fixed={"hidden_act": ("silu",)},
)

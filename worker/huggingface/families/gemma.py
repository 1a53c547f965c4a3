"""Gemma 2 and 3, text models."""

from collections.abc import Mapping

from worker.errors import UnsupportedModelError
from worker.huggingface.config import Config, field
from worker.huggingface.family import Family, Targets
from worker.huggingface.rope import rope_keys, rope_kind, rope_parameters

from .decoder import ATTENTION, GATED_MLP, KEYS, layer, plus_one

_ENDS: Mapping[str, Targets] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": ("output_norm.weight", plus_one),
    "lm_head.weight": "output.weight",
}
_NORMS: Mapping[str, Targets] = {
    "input_layernorm.weight": ("attn_norm.weight", plus_one),
    "post_attention_layernorm.weight": ("post_attention_norm.weight", plus_one),
    "pre_feedforward_layernorm.weight": ("ffn_norm.weight", plus_one),
    "post_feedforward_layernorm.weight": ("post_ffw_norm.weight", plus_one),
}
_HEAD_NORMS: Mapping[str, Targets] = {
    "self_attn.q_norm.weight": ("attn_q_norm.weight", plus_one),
    "self_attn.k_norm.weight": ("attn_k_norm.weight", plus_one),
}
_GEMMA_KEYS = {
    **KEYS,
    "attention.key_length": field("head_dim", 256),
    "attention.value_length": field("head_dim", 256),
    "attention.sliding_window": field("sliding_window"),
    "attn_logit_softcapping": field("attn_logit_softcapping", None),
    "final_logit_softcapping": field("final_logit_softcapping", None),
}


def _layer_kinds(config: Config) -> object:
    """Which layers see a window only; in older checkpoints all but each so-manieth."""
    if config.get("layer_types") is None:
        return config.get("sliding_window_pattern")
    kinds = config.names("layer_types", config.integer("num_hidden_layers"))
    return [kind == "sliding_attention" for kind in kinds]


def _check_scale(config: Config) -> Mapping[str, object]:
    """Check that queries are scaled as a GGUF file of these sizes would have it.

    Raises:
        UnsupportedModelError: they are scaled by another number.
    """
    scalar = config.number("query_pre_attn_scalar", 256)
    heads, width = config.integer("num_attention_heads"), config.integer("head_dim", 256)
    is_27b = config.integer("num_hidden_layers") in (46, 62)
    expected = config.integer("hidden_size") / heads if is_27b else width
    if scalar != expected:
        raise UnsupportedModelError(
            f"{config.path}: field query_pre_attn_scalar is {scalar:g}, expected {expected:g} for "
            "a model of these sizes; take another model"
        )
    return {}


def _gemma3_rope(config: Config) -> Mapping[str, object]:
    """Two bases; scaling is for layers with full attention only."""
    local = rope_parameters(config, "sliding_attention")
    if config.get("rope_parameters") is None:
        base = config.number("rope_local_base_freq", 10000.0)
    elif rope_kind(local) != "default":
        raise UnsupportedModelError(
            f"{config.path}: rotary positions of sliding_attention are scaled, which is not "
            "computed; take another model"
        )
    else:
        base = local.number("rope_theta", 10000.0)
    return {**rope_keys(config, default_base=1_000_000.0), "rope.freq_base_swa": base}


# Checkpoints that see images, too, leave these out.
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
    "rope_theta": 1_000_000.0,
}

_GEMMA2_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}

GEMMA2 = Family(
    architecture="gemma2",
    classes=("Gemma2ForCausalLM",),
    keys={**_GEMMA_KEYS, **{name: field(name, 0.0) for name in _GEMMA2_CAPS}},  # 0 for null
    defaults=_GEMMA2_CAPS,
    key_groups=(rope_keys, _check_scale),
    tensors={**_ENDS, **layer({**_NORMS, **ATTENTION, **GATED_MLP})},
    fixed={"hidden_activation": ("gelu_pytorch_tanh",)},
    ties_embeddings=True,
)

GEMMA3 = Family(
    architecture="gemma3",
    classes=("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    keys={**_GEMMA_KEYS, "attention.sliding_window_pattern": _layer_kinds},
    key_groups=(_gemma3_rope, _check_scale),
    tensors={**_ENDS, **layer({**_NORMS, **ATTENTION, **_HEAD_NORMS, **GATED_MLP})},
    fixed={"hidden_activation": ("gelu_pytorch_tanh",), "use_bidirectional_attention": (False,)},
    ties_embeddings=True,
    defaults=_GEMMA3_DEFAULTS,
    prefixes={
        "model.language_model.": "model.",
        "language_model.model.": "model.",
        "language_model.lm_head.": "lm_head.",
    },
    other_parts=(
        *("vision_tower.", "multi_modal_projector."),
        *("model.vision_tower.", "model.multi_modal_projector."),
    ),
)

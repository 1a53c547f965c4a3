"""What most decoders have in common: keys, tensors, and ways to read them."""

from collections.abc import Mapping

import numpy as np

from worker.errors import CheckpointError
from worker.huggingface.config import Config, Setting, field
from worker.huggingface.family import Make, Targets
from worker.huggingface.readings import Computed, Picked, Reading, Stored, values_of

KEYS: Mapping[str, Setting] = {
    "block_count": field("num_hidden_layers"),
    "context_length": field("max_position_embeddings"),
    "embedding_length": field("hidden_size"),
    "feed_forward_length": field("intermediate_size"),
    "attention.head_count": field("num_attention_heads"),
    "attention.head_count_kv": field("num_key_value_heads", None),
    "attention.key_length": field("head_dim", None),
    "attention.value_length": field("head_dim", None),
    "attention.layer_norm_rms_epsilon": field("rms_norm_eps"),
}
"""Sizes of a decoder with RMS norms."""

WINDOW_KEY: Mapping[str, Setting] = {"attention.sliding_window": field("sliding_window", None)}
"""The window of every layer, if the checkpoint has one."""

LAYER_NORM_KEYS: Mapping[str, Setting] = {
    key: setting for key, setting in KEYS.items() if key != "attention.layer_norm_rms_epsilon"
}
"""Sizes of a decoder with LayerNorm; the family adds its epsilon."""

ENDS: Mapping[str, Targets] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
"""Embedding, last norm and output head."""


LAYER_NORM_ENDS: Mapping[str, Targets] = {**ENDS, "model.norm.bias": "output_norm.bias"}
"""The same with LayerNorm."""


def whole_context(config: Config) -> int:
    """Positions for which a window over the last tokens makes no difference.

    The models that use this attend to everything; a checkpoint with a window is run up to that
    window, where both are the same.
    """
    context = config.integer("max_position_embeddings")
    if config.get("use_sliding_window") is False or config.get("sliding_window") is None:
        return context
    return min(context, config.integer("sliding_window"))


def layer(tensors: Mapping[str, Targets]) -> Mapping[str, Targets]:
    """Tensors of every layer: names inside a layer to names behind ``blk.N.``."""
    return {f"model.layers.{{layer}}.{name}": _in_block(target) for name, target in tensors.items()}


def _in_block(target: Targets) -> Targets:
    if isinstance(target, str):
        return f"blk.{{layer}}.{target}"
    if isinstance(target, tuple):
        return f"blk.{{layer}}.{target[0]}", target[1]
    return {f"blk.{{layer}}.{name}": make for name, make in target.items()}


def with_biases(tensors: Mapping[str, Targets]) -> Mapping[str, Targets]:
    """The same tensors, and their biases, which a checkpoint may or may not have."""
    return {**tensors, **{_bias(name): _bias_target(target) for name, target in tensors.items()}}


def _bias(name: str) -> str:
    return name.removesuffix(".weight") + ".bias"


def _bias_target(target: Targets) -> Targets:
    if isinstance(target, str):
        return _bias(target)
    if isinstance(target, tuple):
        return _bias(target[0]), target[1]
    return {_bias(name): make for name, make in target.items()}


ATTENTION: Mapping[str, Targets] = with_biases(
    {
        "self_attn.q_proj.weight": "attn_q.weight",
        "self_attn.k_proj.weight": "attn_k.weight",
        "self_attn.v_proj.weight": "attn_v.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
    }
)
"""Projections of attention with halves that rotate together, as GGUF has them too."""

HEAD_NORMS: Mapping[str, Targets] = {
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
}
"""Norms of queries and keys."""

GATED_MLP: Mapping[str, Targets] = with_biases(
    {
        "mlp.gate_proj.weight": "ffn_gate.weight",
        "mlp.up_proj.weight": "ffn_up.weight",
        "mlp.down_proj.weight": "ffn_down.weight",
    }
)
"""Feed-forward layer with a gate."""

PRE_NORMS: Mapping[str, Targets] = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
}
"""Norms before attention and feed-forward."""


def paired(heads: str) -> Make:
    """Rows of each head reordered from halves that rotate together to neighbours that do.

    Args:
        heads: field with the number of heads.
    """

    def make(stored: Stored, config: Config) -> Reading:
        count = config.integer(heads, config.integer("num_attention_heads"))
        rows = stored.shape[0]
        if rows % (2 * count):
            raise CheckpointError(
                f"{stored.file.path}: a projection has {rows} rows, not a multiple of twice the "
                f"{count} heads of config.json; copy or download the folder again"
            )
        order = np.arange(rows).reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)
        return Picked(stored, order, stored.shape)

    return make


def plus_one(stored: Stored, config: Config) -> Reading:
    """A norm's weight with 1 added: Gemma stores how far it is from 1."""
    return Computed(values_of(stored) + np.float32(1))

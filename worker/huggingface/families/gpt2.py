"""GPT-2: learned positions, one projection for queries, keys and values, matrices transposed."""

from collections.abc import Mapping

from worker.huggingface.config import Config, field
from worker.huggingface.family import Family, Targets
from worker.huggingface.readings import Reading, Stored, Transposed


def _transposed(stored: Stored, config: Config) -> Reading:
    return Transposed(stored)


def _inner(config: Config) -> int:
    return config.integer("n_inner", 4 * config.integer("n_embd"))


_LAYER: Mapping[str, Targets] = {
    "attn.c_attn.weight": ("attn_qkv.weight", _transposed),
    "attn.c_attn.bias": "attn_qkv.bias",
    "attn.c_proj.weight": ("attn_output.weight", _transposed),
    "attn.c_proj.bias": "attn_output.bias",
    "mlp.c_fc.weight": ("ffn_up.weight", _transposed),
    "mlp.c_fc.bias": "ffn_up.bias",
    "mlp.c_proj.weight": ("ffn_down.weight", _transposed),
    "mlp.c_proj.bias": "ffn_down.bias",
    "ln_1.weight": "attn_norm.weight",
    "ln_1.bias": "attn_norm.bias",
    "ln_2.weight": "ffn_norm.weight",
    "ln_2.bias": "ffn_norm.bias",
}
_MODEL: Mapping[str, Targets] = {
    "wte.weight": "token_embd.weight",
    "wpe.weight": "position_embd.weight",
    "ln_f.weight": "output_norm.weight",
    "ln_f.bias": "output_norm.bias",
    **{
        f"h.{{layer}}.{name}": (
            f"blk.{{layer}}.{target}"
            if isinstance(target, str)
            else (f"blk.{{layer}}.{target[0]}", _transposed)
        )
        for name, target in _LAYER.items()
        if isinstance(target, str | tuple)
    },
}

GPT2 = Family(
    architecture="gpt2",
    classes=("GPT2LMHeadModel",),
    keys={
        "block_count": field("n_layer"),
        "context_length": field("n_positions"),
        "embedding_length": field("n_embd"),
        "feed_forward_length": _inner,
        "attention.head_count": field("n_head"),
        "attention.layer_norm_epsilon": field("layer_norm_epsilon"),
    },
    # The first checkpoints have no prefix.
    tensors={
        **_MODEL,
        **{f"transformer.{name}": target for name, target in _MODEL.items()},
        "lm_head.weight": "output.weight",
    },
    fixed={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    ties_embeddings=True,
    ignored=(".attn.bias", ".attn.masked_bias"),
)

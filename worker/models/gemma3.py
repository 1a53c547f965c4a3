"""Gemma 3 (Google, 2025), text part: sliding windows between layers of full attention.

Five layers of six see a window only and have a rotary base of their own. Queries and keys are
normalised head by head, attention and feed-forward have a norm on either side, and embeddings
are scaled. Norm weights in the file have 1 added already.
"""

from dataclasses import replace

import numpy as np

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import SandwichBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .rope_config import RopeConfig, rope_base
from .windows import alternating_windows

_FULL_EVERY = 6
_GLOBAL_BASE = 1_000_000.0
_LOCAL_BASE = 10_000.0
# The 27B model scales queries by hidden size per head; its file does not say so (62 layers do).
_LAYERS_27B = 62


def gemma3_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; scaling of positions is for layers with full attention only."""
    config = base_config(gguf, keys, rope_layout="halves")
    assert config.rope is not None
    window = keys.positive("attention.sliding_window")
    local_base = rope_base(keys, "rope.freq_base_swa") or _LOCAL_BASE
    if keys.optional_number("rope.freq_base") is None:
        config = replace(config, rope=replace(config.rope, base=_GLOBAL_BASE))
    assert config.rope is not None
    return replace(
        config,
        windows=alternating_windows(keys, config.num_layers, window, _FULL_EVERY),
        local_rope=RopeConfig(local_base, config.rope.dimensions, config.rope.layout),
        attention_scale=_attention_scale(config),
        # The checkpoint's own float32 rounding of the square root.
        embedding_scale=float(np.sqrt(np.float32(config.hidden_size))),
        attention_cap=keys.factor("attn_logit_softcapping"),
        logit_cap=keys.factor("final_logit_softcapping"),
    )


def _attention_scale(config: ModelConfig) -> float:
    if config.num_layers == _LAYERS_27B:
        return float((config.hidden_size / config.num_heads) ** -0.5)
    return config.attention_scale


def load_gemma3(loader: Loader) -> Decoder:
    """Build the model of a ``gemma3`` file."""
    config = loader.config
    full, local = loader.rotary(), loader.rotary(config.local_rope)

    def make_block(layer: int) -> SandwichBlock:
        rotary = full if config.windows[layer] is None else local
        return SandwichBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all", head_norms=True),
            loader.rms_norm(f"blk.{layer}.post_attention_norm"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "gelu_tanh"),
            loader.rms_norm(f"blk.{layer}.post_ffw_norm"),
        )

    return Decoder(loader, make_block, [full, local])

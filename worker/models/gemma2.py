"""Gemma 2 (Google, 2024): soft caps, and every other layer sees a window only.

Attention and feed-forward have a norm on either side, and embeddings are scaled. Norm weights in
the file have 1 added already.
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
from .windows import alternating_windows

_WINDOW = 4096
_FULL_EVERY = 2
_ATTENTION_CAP, _LOGIT_CAP = 50.0, 30.0
# The 27B model scales queries by hidden size per head; its file does not say so (46 layers do).
_LAYERS_27B = 46


def gemma2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; what early files leave out is the same in all models of the family."""
    config = base_config(gguf, keys, rope_layout="halves")
    window = keys.optional_positive("attention.sliding_window") or _WINDOW
    return replace(
        config,
        windows=alternating_windows(keys, config.num_layers, window, _FULL_EVERY),
        attention_scale=_attention_scale(config),
        # The checkpoint's own float32 rounding of the square root.
        embedding_scale=float(np.sqrt(np.float32(config.hidden_size))),
        attention_cap=_cap(keys, "attn_logit_softcapping", _ATTENTION_CAP),
        logit_cap=_cap(keys, "final_logit_softcapping", _LOGIT_CAP),
    )


def _cap(keys: KeyReader, name: str, default: float) -> float | None:
    """A soft cap; None where the file says 0."""
    return default if keys.optional_number(name) is None else keys.factor(name)


def _attention_scale(config: ModelConfig) -> float:
    if config.num_layers == _LAYERS_27B:
        return float((config.hidden_size // config.num_heads) ** -0.5)
    return config.attention_scale


def load_gemma2(loader: Loader) -> Decoder:
    """Build the model of a ``gemma2`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> SandwichBlock:
        return SandwichBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all"),
            loader.rms_norm(f"blk.{layer}.post_attention_norm"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "gelu_tanh"),
            loader.rms_norm(f"blk.{layer}.post_ffw_norm"),
        )

    return Decoder(loader, make_block, [rotary])

"""Gemma 3 (Google, 2025), text part: sliding windows between layers of full attention.

Five layers of six see a window only and have a rotary base of their own. Queries and keys are
normalised head by head, attention and feed-forward have a norm on either side, and embeddings
are scaled. Norm weights in the file have 1 added already.
"""

from dataclasses import replace

import numpy as np

from worker.gguf import ModelFile

from .config import ModelConfig, base_config
from .decoder import Decoder
from .key_reader import KeyReader
from .loader import Loader
from .rope_config import RopeConfig, rope_base
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory

_FULL_EVERY = 6
_GLOBAL_BASE = 1_000_000.0
_LOCAL_BASE = 10_000.0
# The 27B model scales queries by hidden size per head; its file does not say so (62 layers do).
_LAYERS_27B = 62


def gemma3_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; scaling of positions is for layers with full attention only."""
    config = base_config(gguf, keys, rope_layout="halves")
    assert config.rope is not None
    local_base = rope_base(keys, "rope.freq_base_swa") or _LOCAL_BASE
    if keys.optional_number("rope.freq_base") is None:
        config = replace(config, rope=replace(config.rope, base=_GLOBAL_BASE))
    assert config.rope is not None
    return replace(
        config,
        windows=_windows(keys, config.num_layers, _FULL_EVERY),
        local_rope=RopeConfig(local_base, config.rope.dimensions, config.rope.layout),
        attention_scale=_attention_scale(config),
        # The checkpoint's own float32 rounding of the square root.
        embedding_scale=float(np.sqrt(np.float32(config.hidden_size))),
        attention_cap=keys.factor("attn_logit_softcapping"),
        logit_cap=keys.factor("final_logit_softcapping"),
    )


def _windows(keys: KeyReader, num_layers: int, full_every: int) -> tuple[int | None, ...]:
    """Each layer's window: as the file says layer by layer, or all but each `every`-th."""
    window = keys.positive("attention.sliding_window")
    pattern = "attention.sliding_window_pattern"
    flags = keys.optional_layer_flags(pattern, num_layers)
    if flags is None:
        every = keys.optional_positive(pattern) or full_every
        flags = [(layer + 1) % every != 0 for layer in range(num_layers)]
    return tuple(window if flag else None for flag in flags)


def _attention_scale(config: ModelConfig) -> float:
    if config.num_layers == _LAYERS_27B:
        return float((config.hidden_size / config.num_heads) ** -0.5)
    return config.attention_scale


class Gemma3Attention:
    """Grouped-query attention with normalised queries and keys, full or in a window."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer, "biases")
        self.query_norm = loader.rms_norm(f"blk.{layer}.attn_q_norm", loader.config.head_dim)
        self.key_norm = loader.rms_norm(f"blk.{layer}.attn_k_norm", loader.config.head_dim)
        self.output = loader.attention_output(layer, "biases")

    def __call__(self, x: Rows, step: Step) -> Memory:
        """Attend from x: [T, hidden_size]."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        step.rotate_and_write(
            self.layer, qkv, self.rotary, c.num_heads, self.query_norm, self.key_norm
        )
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, c.attention_cap)
        return step.project("attn_output", self.output, attended)


class Gemma3MLP:
    """Feed-forward layer gated by GELU in its tanh approximation."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.gate_up = loader.gate_up(layer)
        self.down = loader.down(layer)

    def __call__(self, x: Rows, step: Step) -> Memory:
        """Apply to x: [T, hidden_size]."""
        gated = step.gate(self.gate_up, x, "gelu_tanh")  # [T, intermediate_size]
        return step.project("ffn_down", self.down, gated)


class Gemma3Block:
    """A layer: attention and feed-forward each have a norm before and after."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.rms_norm(f"blk.{layer}.attn_norm")
        self.attention = Gemma3Attention(loader, layer, rotary)
        self.post_attention_norm = loader.rms_norm(f"blk.{layer}.post_attention_norm")
        self.mlp_norm = loader.rms_norm(f"blk.{layer}.ffn_norm")
        self.mlp = Gemma3MLP(loader, layer)
        self.post_mlp_norm = loader.rms_norm(f"blk.{layer}.post_ffw_norm")

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        attended = self.attention(step.norm(self.attention_norm, x), step)
        step.add(x, attended, self.post_attention_norm)
        transformed = self.mlp(step.norm(self.mlp_norm, x), step)
        step.add(x, transformed, self.post_mlp_norm)


def load_gemma3(loader: Loader) -> Decoder:
    """Build the model of a ``gemma3`` file."""
    config = loader.config
    full, local = loader.rotary(), loader.rotary(config.local_rope)

    def make_block(layer: int) -> Gemma3Block:
        return Gemma3Block(loader, layer, full if config.windows[layer] is None else local)

    return Decoder(loader, make_block, [full, local])

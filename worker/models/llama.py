"""Llama (Touvron et al., 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Also Llama 2 and 3, Mistral, SmolLM2 and others whose files say ``llama``; and Mixtral (Jiang et
al., 2024), whose feed-forward layers are mixtures of experts.
"""

from dataclasses import replace

from worker.gguf import ModelFile

from .config import ModelConfig, base_config, window_of_all_layers
from .decoder import Decoder
from .experts import MixtureOfExperts
from .experts_config import read_experts
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory


def llama_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; converters permute query and key rows so that pairs lie side by side.

    Mistral's first version has a window, the same in all layers.
    """
    config = base_config(gguf, keys, rope_layout="pairs")
    experts = None
    if keys.optional_unless_zero("expert_count"):
        experts = read_experts(keys, config.num_layers, config.intermediate_size)
    windows = window_of_all_layers(keys, config.num_layers)
    return replace(config, windows=windows, experts=experts)


class LlamaAttention:
    """Grouped-query attention with rotary positions."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer, "biases")
        self.output = loader.attention_output(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        step.rotate_and_write(self.layer, qkv, self.rotary, c.num_heads)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None)  # [T, H * D]
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


class LlamaMLP:
    """Feed-forward layer gated by SiLU."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.gate_up = loader.gate_up(layer, "biases")
        self.down = loader.down(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        gated = step.gate(self.gate_up, x, "silu")  # [T, intermediate_size]
        step.project_and_add("ffn_down", self.down, gated, to)  # [T, hidden_size]


class LlamaBlock:
    """A layer: norms stand before attention and feed-forward."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = LlamaAttention(loader, layer, rotary)
        self.mlp_norm = loader.norm(f"blk.{layer}.ffn_norm")
        has_experts = loader.config.experts is not None
        self.mlp = (MixtureOfExperts if has_experts else LlamaMLP)(loader, layer)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention(step.norm(self.attention_norm, x), step, to=x)
        self.mlp(step.norm(self.mlp_norm, x), step, to=x)


def load_llama(loader: Loader) -> Decoder:
    """Build the model of a ``llama`` file."""
    rotary = loader.rotary_with_divisors()
    return Decoder(loader, lambda layer: LlamaBlock(loader, layer, rotary), [rotary])

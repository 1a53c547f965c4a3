"""Qwen 3 with experts (Alibaba, 2025): normalised queries and keys, a mixture in every layer."""

from dataclasses import replace

from worker.gguf import ModelFile

from .config import ModelConfig, base_config
from .decoder import Decoder
from .experts import MixtureOfExperts
from .experts_config import read_experts
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory


def qwen3moe_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    return replace(config, experts=read_experts(keys, config.num_layers))


class Qwen3MoeAttention:
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer)
        self.query_norm = loader.rms_norm(f"blk.{layer}.attn_q_norm", loader.config.head_dim)
        self.key_norm = loader.rms_norm(f"blk.{layer}.attn_k_norm", loader.config.head_dim)
        self.output = loader.attention_output(layer)

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        norms = self.query_norm, self.key_norm
        step.rotate_and_write(self.layer, qkv, self.rotary, c.num_heads, *norms)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None)  # [T, H * D]
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


class Qwen3MoeBlock:
    """A layer: norms stand before attention and experts."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = Qwen3MoeAttention(loader, layer, rotary)
        self.mixture_norm = loader.norm(f"blk.{layer}.ffn_norm")
        self.mixture = MixtureOfExperts(loader, layer)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention(step.norm(self.attention_norm, x), step, to=x)
        self.mixture(step.norm(self.mixture_norm, x), step, to=x)


def load_qwen3moe(loader: Loader) -> Decoder:
    """Build the model of a ``qwen3moe`` file."""
    rotary = loader.rotary()
    return Decoder(loader, lambda layer: Qwen3MoeBlock(loader, layer, rotary), [rotary])

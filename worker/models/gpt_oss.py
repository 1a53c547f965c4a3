"""gpt-oss (OpenAI, 2025): attention with sinks, every other layer in a window, and experts.

All projections have biases. A sink is a score of each query head without a value: a head that
finds nothing gives weight to it. Gate and up of the experts are clamped, up is raised by 1.
"""

from dataclasses import replace

from worker.gguf import ModelFile

from .config import ModelConfig, base_config
from .decoder import Decoder
from .experts import MixtureOfExperts
from .experts_config import read_experts
from .gemma3 import _windows
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory

_FULL_EVERY = 2
_LIMIT = 7.0  # of gate and up


def gpt_oss_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    return replace(
        config,
        windows=_windows(keys, config.num_layers, _FULL_EVERY),
        experts=read_experts(keys, config.num_layers),
    )


class GptOssAttention:
    """Grouped-query attention with sinks."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer, "biases")
        self.sinks = loader.attention_sinks(layer)
        self.output = loader.attention_output(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        step.rotate_and_write(self.layer, qkv, self.rotary, c.num_heads)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None, self.sinks)
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


class GptOssBlock:
    """A layer: norms stand before attention and experts."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = GptOssAttention(loader, layer, rotary)
        self.mixture_norm = loader.norm(f"blk.{layer}.post_attention_norm")
        self.mixture = MixtureOfExperts(loader, layer, "quick_gelu", "biases", _LIMIT)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention(step.norm(self.attention_norm, x), step, to=x)
        self.mixture(step.norm(self.mixture_norm, x), step, to=x)


def load_gpt_oss(loader: Loader) -> Decoder:
    """Build the model of a ``gpt-oss`` file."""
    rotary = loader.rotary()
    return Decoder(loader, lambda layer: GptOssBlock(loader, layer, rotary), [rotary])

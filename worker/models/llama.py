"""Llama (Touvron et al., 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Also Llama 2 and 3, Mistral, SmolLM2 and others whose files say ``llama``.
"""

import numpy as np
from numpy.typing import NDArray

from worker.gguf import GGUFFile
from worker.linear import ComputeConfig
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .config import ModelConfig, base_config
from .decoder import Decoder
from .loader import Loader
from .rotary import RotaryEmbedding
from .step import Step


def llama_config(gguf: GGUFFile) -> ModelConfig:
    """Hyperparameters; converters permute query and key rows so that pairs lie side by side.

    A ``llama.attention.sliding_window``, which Mistral's first version could have, is not looked
    at: llama.cpp neither writes nor reads it in this architecture, all layers see everything.
    """
    return base_config(gguf, rope_layout="pairs")


class LlamaAttention:
    """Grouped-query attention with rotary positions."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer)
        self.output = loader.attention_output(layer)

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Attend from x [T, hidden_size]."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        step.rotate(self.rotary, qkv, c.num_heads + c.num_kv_heads, c.head_dim)
        step.write_kv(self.layer, qkv)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None)  # [T, H * D]
        return step.project("attn_output", self.output, attended)  # [T, hidden_size]


class LlamaMLP:
    """Feed-forward layer gated by SiLU."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.gate_up = loader.gate_up(layer)
        self.down = loader.down(layer)

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Apply to x [T, hidden_size]."""
        gate_up = step.project("ffn_gate_up", self.gate_up, x)  # [T, 2 * intermediate_size]
        gated = step.gate(gate_up, "silu")  # [T, intermediate_size]
        return step.project("ffn_down", self.down, gated)  # [T, hidden_size]


class LlamaBlock:
    """A layer: norms stand before attention and feed-forward."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm.weight")
        self.attention = LlamaAttention(loader, layer, rotary)
        self.mlp_norm = loader.norm(f"blk.{layer}.ffn_norm.weight")
        self.mlp = LlamaMLP(loader, layer)

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Add both to x [T, hidden_size], in place."""
        x += self.attention(self.attention_norm(x, step), step)
        x += self.mlp(self.mlp_norm(x, step), step)
        return x


def load_llama(gguf: GGUFFile, compute: ComputeConfig, team: ThreadTeam, stages: Stages) -> Decoder:
    """Build the model of a ``llama`` file."""
    loader = Loader(gguf, llama_config(gguf), compute, team, stages)
    rotary = loader.rotary_with_divisors(loader.config.rope)
    return Decoder(loader, lambda layer: LlamaBlock(loader, layer, rotary), [rotary], team, stages)

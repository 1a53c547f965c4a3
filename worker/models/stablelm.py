"""StableLM (Bellagamba et al., 2024): LayerNorm, and only part of each head is rotated.

Larger models normalise each head of queries and keys with weights of its own, and feed attention
and feed-forward layer the same normalised values.
"""

from worker.gguf import ModelFile

from .config import ModelConfig, base_config
from .decoder import Decoder
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory


def stablelm_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters.

    Converters wrote ``use_parallel_residual`` for models that have none, too: whether there is a
    norm before the feed-forward layer decides, not the key.
    """
    keys.optional_flag("use_parallel_residual")
    return base_config(gguf, keys, rope_layout="halves", norm="layer")


class StableLMAttention:
    """Grouped-query attention with rotary positions on part of each head."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        c = self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv = loader.qkv(layer, "biases")
        self.query_norm = loader.optional_norm_by_head(f"blk.{layer}.attn_q_norm", c.num_heads)
        self.key_norm = loader.optional_norm_by_head(f"blk.{layer}.attn_k_norm", c.num_kv_heads)
        self.output = loader.attention_output(layer)

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        width = c.num_heads * c.head_dim
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        if self.query_norm is not None:
            step.normalize_heads(self.query_norm, qkv, 0, c.num_heads)
        if self.key_norm is not None:
            step.normalize_heads(self.key_norm, qkv, width, c.num_kv_heads)
        step.rotate_and_write(self.layer, qkv, self.rotary, c.num_heads)
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None)  # [T, H * D]
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


class StableLMMLP:
    """Feed-forward layer gated by SiLU."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.gate_up = loader.gate_up(layer)
        self.down = loader.down(layer)

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        gated = step.gate(self.gate_up, x, "silu")  # [T, intermediate_size]
        step.project_and_add("ffn_down", self.down, gated, to)  # [T, hidden_size]


class StableLMBlock:
    """A layer: attention and feed-forward one after the other, or side by side."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = StableLMAttention(loader, layer, rotary)
        self.mlp_norm = loader.optional_norm(f"blk.{layer}.ffn_norm")
        self.mlp = StableLMMLP(loader, layer)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        normed = step.norm(self.attention_norm, x)
        self.attention(normed, step, to=x)
        if self.mlp_norm is not None:
            normed = step.norm(self.mlp_norm, x)
        self.mlp(normed, step, to=x)


def load_stablelm(loader: Loader) -> Decoder:
    """Build the model of a ``stablelm`` file."""
    rotary = loader.rotary()
    return Decoder(loader, lambda layer: StableLMBlock(loader, layer, rotary), [rotary])

"""StableLM (Bellagamba et al., 2024): LayerNorm, and only part of each head is rotated.

Larger models normalise each head of queries and keys with weights of its own, and feed attention
and feed-forward layer the same normalised values.
"""

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Block, Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .norm import Norm
from .rotary import RotaryEmbedding
from .step import Step
from .workspace import Memory


def stablelm_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters.

    Converters wrote ``use_parallel_residual`` for models that have none, too: whether there is a
    norm before the feed-forward layer decides, not the key.
    """
    keys.optional_flag("use_parallel_residual")
    return base_config(gguf, keys, rope_layout="halves", norm="layer")


class StableLMAttention(Attention):
    """Attention whose heads may each have a norm of their own."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        super().__init__(loader, layer, rotary, biases="qkv")
        c = self.config
        self.norms_of_queries = loader.norms_by_head(f"blk.{layer}.attn_q_norm", c.num_heads)
        self.norms_of_keys = loader.norms_by_head(f"blk.{layer}.attn_k_norm", c.num_kv_heads)

    def normalize(self, qkv: Memory, step: Step) -> None:
        """Normalise each head about its mean, where there are weights for it."""
        c = self.config
        if self.norms_of_queries is not None:
            step.normalize_heads(self.norms_of_queries, qkv, 0, c.num_heads)
        if self.norms_of_keys is not None:
            first_key = c.num_heads * c.head_dim
            step.normalize_heads(self.norms_of_keys, qkv, first_key, c.num_kv_heads)


class ParallelBlock:
    """A layer that adds attention and feed-forward of the same normalised values."""

    def __init__(self, norm: Norm, attention: StableLMAttention, mlp: GatedMLP) -> None:
        self.norm, self.attention, self.mlp = norm, attention, mlp

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        normed = step.norm(self.norm, x)
        self.attention.add(normed, step, to=x)
        self.mlp.add(normed, step, to=x)


def load_stablelm(loader: Loader) -> Decoder:
    """Build the model of a ``stablelm`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> Block:
        norm = loader.norm(f"blk.{layer}.attn_norm")
        attention = StableLMAttention(loader, layer, rotary)
        mlp = GatedMLP(loader.gate_up(layer), loader.down(layer), "silu")
        mlp_norm = loader.optional_norm(f"blk.{layer}.ffn_norm")
        if mlp_norm is None:
            return ParallelBlock(norm, attention, mlp)
        return PreNormBlock(norm, attention, mlp_norm, mlp)

    return Decoder(loader, make_block, [rotary])

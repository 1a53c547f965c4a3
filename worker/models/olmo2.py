"""OLMo 2 (Walsh et al., 2025): norms stand after attention and feed-forward only.

Queries and keys are normalised over all heads together. In its successor OLMo 3, whose files say
``olmo2`` as well, three layers of four see a window, and positions are scaled in the others only.
"""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .norm import RMSNorm
from .rope_config import RopeConfig, rope_base
from .rotary import RotaryEmbedding
from .step import Step
from .windows import alternating_windows
from .workspace import Memory

_FULL_EVERY = 4


def olmo2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    window = keys.optional_unless_zero("attention.sliding_window")
    if window is None:
        return config
    assert config.rope is not None
    base = rope_base(keys, "rope.freq_base_swa") or config.rope.base
    return replace(
        config,
        windows=alternating_windows(keys, config.num_layers, window, _FULL_EVERY),
        local_rope=RopeConfig(base, config.rope.dimensions, config.rope.layout),
    )


class Olmo2Attention(Attention):
    """Attention with a norm over all queries of a token, and one over all keys."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        super().__init__(loader, layer, rotary, biases="all")
        c = self.config
        queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        self.norm_of_queries = loader.rms_norm(f"blk.{layer}.attn_q_norm", queries)
        self.norm_of_keys = loader.rms_norm(f"blk.{layer}.attn_k_norm", keys)

    def normalize(self, qkv: Memory, step: Step) -> None:
        """Normalise all queries together, and all keys."""
        step.normalize_heads(self.norm_of_queries, qkv, 0, 1)
        step.normalize_heads(self.norm_of_keys, qkv, len(self.norm_of_queries.weight), 1)


class Olmo2Block:
    """A layer: what attention and feed-forward give is normalised before it is added."""

    def __init__(
        self,
        attention: Olmo2Attention,
        post_attention_norm: RMSNorm,
        mlp: GatedMLP,
        post_mlp_norm: RMSNorm,
    ) -> None:
        self.attention, self.post_attention_norm = attention, post_attention_norm
        self.mlp, self.post_mlp_norm = mlp, post_mlp_norm

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        step.add(x, self.attention(step.rows(x), step), self.post_attention_norm)
        step.add(x, self.mlp(step.rows(x), step), self.post_mlp_norm)


def load_olmo2(loader: Loader) -> Decoder:
    """Build the model of an ``olmo2`` file."""
    config = loader.config
    full, local = loader.rotary(), loader.rotary(config.local_rope)

    def make_block(layer: int) -> Olmo2Block:
        rotary = full if config.windows[layer] is None else local
        return Olmo2Block(
            Olmo2Attention(loader, layer, rotary),
            loader.rms_norm(f"blk.{layer}.post_attention_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "silu"),
            loader.rms_norm(f"blk.{layer}.post_ffw_norm"),
        )

    return Decoder(loader, make_block, [full, local])

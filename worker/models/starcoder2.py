"""StarCoder2 (Lozhkov et al., 2024): LayerNorm, biases, GELU, and a window in all layers."""

from dataclasses import replace

from worker.gguf import ModelFile

from .config import ModelConfig, base_config, window_of_all_layers
from .decoder import Decoder
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory


def starcoder2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; a file without a window means that all layers see everything."""
    config = base_config(gguf, keys, rope_layout="halves", norm="layer")
    return replace(config, windows=window_of_all_layers(keys, config.num_layers))


class Starcoder2Attention:
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


class Starcoder2MLP:
    """Feed-forward layer with GELU in its tanh approximation, without a gate."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.up = loader.up(layer, "biases")
        self.down = loader.down(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        up = step.project("ffn_up", self.up, x)  # [T, intermediate_size]
        step.project_and_add("ffn_down", self.down, step.activate(up, "gelu_tanh"), to)


class Starcoder2Block:
    """A layer: norms stand before attention and feed-forward."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = Starcoder2Attention(loader, layer, rotary)
        self.mlp_norm = loader.norm(f"blk.{layer}.ffn_norm")
        self.mlp = Starcoder2MLP(loader, layer)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention(step.norm(self.attention_norm, x), step, to=x)
        self.mlp(step.norm(self.mlp_norm, x), step, to=x)


def load_starcoder2(loader: Loader) -> Decoder:
    """Build the model of a ``starcoder2`` file."""
    rotary = loader.rotary()
    return Decoder(loader, lambda layer: Starcoder2Block(loader, layer, rotary), [rotary])

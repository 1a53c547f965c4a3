"""GPT-2 (Radford et al., 2019): learned positions, LayerNorm, biases everywhere, GELU."""

from worker.gguf import ModelFile

from .config import ModelConfig, base_config
from .decoder import Decoder
from .key_reader import KeyReader
from .loader import Loader
from .rows import Rows
from .step import Step
from .workspace import Memory


def gpt2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; nothing is rotated."""
    return base_config(gguf, keys, rope_layout=None, norm="layer")


class GPT2Attention:
    """Multi-head attention; the positions are in the values that come in."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.config = loader.config
        self.layer = layer
        self.qkv = loader.qkv(layer, "biases")
        self.output = loader.attention_output(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        step.rotate_and_write(self.layer, qkv, None, c.num_heads)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv, width, c.attention_scale, None)  # [T, H * D]
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


class GPT2MLP:
    """Feed-forward layer with GELU in its tanh approximation."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.up = loader.up(layer, "biases")
        self.down = loader.down(layer, "biases")

    def __call__(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        up = step.project("ffn_up", self.up, x)  # [T, intermediate_size]
        step.project_and_add("ffn_down", self.down, step.activate(up, "gelu_tanh"), to)


class GPT2Block:
    """A layer: norms stand before attention and feed-forward."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.attention_norm = loader.norm(f"blk.{layer}.attn_norm")
        self.attention = GPT2Attention(loader, layer)
        self.mlp_norm = loader.norm(f"blk.{layer}.ffn_norm")
        self.mlp = GPT2MLP(loader, layer)

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention(step.norm(self.attention_norm, x), step, to=x)
        self.mlp(step.norm(self.mlp_norm, x), step, to=x)


def load_gpt2(loader: Loader) -> Decoder:
    """Build the model of a ``gpt2`` file."""
    positions = loader.position_embedding()
    return Decoder(loader, lambda layer: GPT2Block(loader, layer), [], positions)

"""GPT-2 (Radford et al., 2019): learned positions, LayerNorm, biases everywhere, GELU."""

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import PlainMLP
from .key_reader import KeyReader
from .loader import Loader


def gpt2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; nothing is rotated."""
    return base_config(gguf, keys, rope_layout=None, norm="layer")


def load_gpt2(loader: Loader) -> Decoder:
    """Build the model of a ``gpt2`` file."""
    positions = loader.position_embedding()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, None, biases="all"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            PlainMLP(loader.up(layer, "biases"), loader.down(layer, "biases"), "gelu_tanh"),
        )

    return Decoder(loader, make_block, [], positions)

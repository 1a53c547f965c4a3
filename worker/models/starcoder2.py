"""StarCoder2 (Lozhkov et al., 2024): LayerNorm, biases, GELU, and a window in all layers."""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import PlainMLP
from .key_reader import KeyReader
from .loader import Loader
from .windows import window_of_all_layers


def starcoder2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; a file without a window means that all layers see everything."""
    config = base_config(gguf, keys, rope_layout="halves", norm="layer")
    return replace(config, windows=window_of_all_layers(keys, config.num_layers))


def load_starcoder2(loader: Loader) -> Decoder:
    """Build the model of a ``starcoder2`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            PlainMLP(loader.up(layer, "biases"), loader.down(layer, "biases"), "gelu_tanh"),
        )

    return Decoder(loader, make_block, [rotary])

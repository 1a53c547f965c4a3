"""Phi-3 (Abdin et al., 2024): Llama with fused tensors, a window, and LongRoPE. Also Phi-4.

Queries, keys and values are one tensor, gate and up another, the gate above.
"""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .windows import window_of_all_layers


def phi3_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; a window of 0 means that all layers see everything."""
    config = base_config(gguf, keys, rope_layout="halves")
    return replace(config, windows=window_of_all_layers(keys, config.num_layers))


def load_phi3(loader: Loader) -> Decoder:
    """Build the model of a ``phi3`` file."""
    rotary = loader.rotary_with_divisors()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="qkv"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.fused_gate_up(layer), loader.down(layer), "silu"),
        )

    return Decoder(loader, make_block, [rotary])

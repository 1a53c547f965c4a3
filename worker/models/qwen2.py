"""Qwen2 (Yang et al., 2024): Llama with biases on queries, keys and values. Also Qwen2.5."""

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader


def qwen2_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    return base_config(gguf, keys, rope_layout="halves")


def load_qwen2(loader: Loader) -> Decoder:
    """Build the model of a ``qwen2`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="qkv"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "silu"),
        )

    return Decoder(loader, make_block, [rotary])

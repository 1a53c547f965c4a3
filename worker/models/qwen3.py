"""Qwen3 (Yang et al., 2025): Llama with a norm on each head of queries and keys."""

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader


def qwen3_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; the heads together may be wider than a token."""
    return base_config(gguf, keys, rope_layout="halves")


def load_qwen3(loader: Loader) -> Decoder:
    """Build the model of a ``qwen3`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all", head_norms=True),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "silu"),
        )

    return Decoder(loader, make_block, [rotary])

"""Qwen 3 with experts (Alibaba, 2025): normalised queries and keys, a mixture in every layer."""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .experts import MixtureOfExperts
from .experts_config import read_experts
from .key_reader import KeyReader
from .loader import Loader


def qwen3moe_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    return replace(config, experts=read_experts(keys, config.num_layers))


def load_qwen3moe(loader: Loader) -> Decoder:
    """Build the model of a ``qwen3moe`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, head_norms=True),
            loader.norm(f"blk.{layer}.ffn_norm"),
            MixtureOfExperts(loader, layer),
        )

    return Decoder(loader, make_block, [rotary])

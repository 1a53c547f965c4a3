"""gpt-oss (OpenAI, 2025): attention with sinks, every other layer in a window, and experts.

All projections have biases. A sink is a score of each query head without a value: a head that
finds nothing gives weight to it. Gate and up of the experts are clamped, up is raised by 1.
"""

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
from .windows import alternating_windows

_FULL_EVERY = 2
_LIMIT = 7.0  # of gate and up


def gpt_oss_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    window = keys.positive("attention.sliding_window")
    return replace(
        config,
        windows=alternating_windows(keys, config.num_layers, window, _FULL_EVERY),
        experts=read_experts(keys, config.num_layers),
    )


def load_gpt_oss(loader: Loader) -> Decoder:
    """Build the model of a ``gpt-oss`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all", sinks=loader.attention_sinks(layer)),
            loader.norm(f"blk.{layer}.post_attention_norm"),
            MixtureOfExperts(loader, layer, "quick_gelu", "biases", _LIMIT),
        )

    return Decoder(loader, make_block, [rotary])

"""Llama (Touvron et al., 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Also Llama 2 and 3, Mistral, SmolLM2 and others whose files say ``llama``; and Mixtral (Jiang et
al., 2024), whose feed-forward layers are mixtures of experts.
"""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import Part, PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .experts import MixtureOfExperts
from .experts_config import read_experts
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .windows import window_of_all_layers


def llama_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; converters permute query and key rows so that pairs lie side by side.

    Mistral's first version has a window, the same in all layers.
    """
    config = base_config(gguf, keys, rope_layout="pairs")
    experts = None
    if keys.optional_unless_zero("expert_count"):
        experts = read_experts(keys, config.num_layers, config.intermediate_size)
    windows = window_of_all_layers(keys, config.num_layers)
    return replace(config, windows=windows, experts=experts)


def load_llama(loader: Loader) -> Decoder:
    """Build the model of a ``llama`` file."""
    rotary = loader.rotary_with_divisors()

    def make_block(layer: int) -> PreNormBlock:
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            _feed_forward(loader, layer),
        )

    return Decoder(loader, make_block, [rotary])


def _feed_forward(loader: Loader, layer: int) -> Part:
    if loader.config.experts is not None:
        return MixtureOfExperts(loader, layer)
    return GatedMLP(loader.gate_up(layer, "biases"), loader.down(layer, "biases"), "silu")

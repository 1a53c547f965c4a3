"""SmolLM3 (Hugging Face, 2025): Llama whose every fourth layer rotates nothing."""

from worker.gguf import ModelFile

from .attention import Attention
from .blocks import PreNormBlock
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader

_UNROTATED_EVERY = 4  # files do not say it


def smollm3_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; converters permute query and key rows so that pairs lie side by side.

    They do so in layers without rotation as well, where it makes no difference.
    """
    return base_config(gguf, keys, rope_layout="pairs")


def load_smollm3(loader: Loader) -> Decoder:
    """Build the model of a ``smollm3`` file."""
    rotary = loader.rotary_with_divisors()

    def make_block(layer: int) -> PreNormBlock:
        is_rotated = (layer + 1) % _UNROTATED_EVERY != 0
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary if is_rotated else None, biases="all"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer, "biases"), loader.down(layer, "biases"), "silu"),
        )

    return Decoder(loader, make_block, [rotary])

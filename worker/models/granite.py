"""Granite (IBM, 2024): Llama with factors on embeddings, attention, residuals and logits."""

from dataclasses import replace

from worker.gguf import ModelFile

from .attention import Attention
from .config import ModelConfig, base_config
from .decoder import Decoder
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .norm import Norm
from .step import Step
from .workspace import Memory


def granite_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters; a file may say that heads are not rotated at all."""
    config = base_config(gguf, keys, rope_layout="pairs")
    is_rotated = keys.optional_flag("rope.scaling.finetuned")
    return replace(
        config,
        rope=None if is_rotated is False else config.rope,
        attention_scale=keys.factor("attention.scale") or config.attention_scale,
        embedding_scale=keys.factor("embedding_scale") or 1.0,
        residual_scale=keys.factor("residual_scale") or 1.0,
        logit_scale=1 / (keys.factor("logit_scale") or 1.0),
    )


class GraniteBlock:
    """A layer: what attention and feed-forward give is scaled before it is added."""

    def __init__(
        self,
        attention_norm: Norm,
        attention: Attention,
        mlp_norm: Norm,
        mlp: GatedMLP,
        scale: float,
    ) -> None:
        self.attention_norm, self.attention = attention_norm, attention
        self.mlp_norm, self.mlp = mlp_norm, mlp
        self.scale = scale

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        attended = self.attention(step.norm(self.attention_norm, x), step)
        step.add(x, attended, scale=self.scale)
        transformed = self.mlp(step.norm(self.mlp_norm, x), step)
        step.add(x, transformed, scale=self.scale)


def load_granite(loader: Loader) -> Decoder:
    """Build the model of a ``granite`` file."""
    config = loader.config
    rotary = None if config.rope is None else loader.rotary_with_divisors()

    def make_block(layer: int) -> GraniteBlock:
        return GraniteBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            Attention(loader, layer, rotary, biases="all"),
            loader.norm(f"blk.{layer}.ffn_norm"),
            GatedMLP(loader.gate_up(layer, "biases"), loader.down(layer, "biases"), "silu"),
            config.residual_scale,
        )

    return Decoder(loader, make_block, [] if rotary is None else [rotary])

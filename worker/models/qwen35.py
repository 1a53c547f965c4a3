"""Qwen 3.5 (Alibaba, 2026), text part: gated delta nets, and gated attention in each fourth layer.

Positions of text rotate the first values of a head as in other models: the sections of an image's
positions are all the same there. Norm weights in the file have 1 added already.
"""

from dataclasses import replace

from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import ModelFile

from .blocks import PreNormBlock
from .config import DeltaConfig, ModelConfig, base_config
from .decoder import Decoder
from .delta_net import DeltaNet
from .feed_forward import GatedMLP
from .key_reader import KeyReader
from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory

_FULL_EVERY = 4


def qwen35_config(gguf: ModelFile, keys: KeyReader) -> ModelConfig:
    """Hyperparameters."""
    config = base_config(gguf, keys, rope_layout="halves")
    keys.ignore("rope.dimension_sections")
    return replace(config, delta=_delta(keys, config))


def _recurrent_layers(keys: KeyReader, config: ModelConfig) -> list[bool]:
    """Layer by layer as the file says, or all but each `interval`-th."""
    every = keys.optional_positive("full_attention_interval") or _FULL_EVERY
    blocks = config.num_layers + config.guessing_layers
    flags = keys.optional_layer_flags("attention.recurrent_layers", blocks)
    if flags is None and keys.is_given("attention.recurrent_layers"):
        raise GGUFError(
            f"{keys.path}: key {keys.key('attention.recurrent_layers')} is no list of booleans; "
            "convert the model again"
        )
    if flags is None:
        return [(layer + 1) % every != 0 for layer in range(config.num_layers)]
    return flags[: config.num_layers]


def _delta(keys: KeyReader, config: ModelConfig) -> DeltaConfig:
    flags = _recurrent_layers(keys, config)
    if all(flags):
        raise UnsupportedModelError(
            f"{keys.path}: all {len(flags)} layers are recurrent; tokenmill runs models of "
            f"{keys.architecture} in which some have attention: take a complete file"
        )
    value_heads = keys.positive("ssm.time_step_rank")
    _check_multiple(keys, "ssm.inner_size", "ssm.time_step_rank")
    _check_multiple(keys, "ssm.time_step_rank", "ssm.group_count")
    return DeltaConfig(
        layers=tuple(flags),
        kernel_size=keys.positive("ssm.conv_kernel"),
        key_heads=keys.positive("ssm.group_count"),
        value_heads=value_heads,
        key_dim=keys.positive("ssm.state_size"),
        value_dim=keys.positive("ssm.inner_size") // value_heads,
    )


def _check_multiple(keys: KeyReader, whole: str, part: str) -> None:
    if keys.positive(whole) % keys.positive(part):
        raise GGUFError(
            f"{keys.path}: key {keys.key(whole)} is {keys.positive(whole)}, not a multiple of "
            f"{keys.key(part)}, {keys.positive(part)}; convert the model again"
        )


class Qwen35Attention:
    """Grouped-query attention with normalised queries and keys, whose result is gated."""

    def __init__(self, loader: Loader, layer: int, rotary: RotaryEmbedding) -> None:
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.qkv_gate = loader.gated_qkv(layer)
        self.query_norm = loader.rms_norm(f"blk.{layer}.attn_q_norm", loader.config.head_dim)
        self.key_norm = loader.rms_norm(f"blk.{layer}.attn_k_norm", loader.config.head_dim)
        self.output = loader.attention_output(layer)

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        c = self.config
        qkv_gate = step.project("attn_qkv", self.qkv_gate, x)  # [T, (2 H + 2 KV) * D]
        norms = self.query_norm, self.key_norm
        step.rotate_and_write(self.layer, qkv_gate, self.rotary, c.num_heads, *norms)
        width = c.num_heads * c.head_dim
        attended = step.attend(self.layer, qkv_gate, width, c.attention_scale, None)  # [T, H * D]
        step.scale_by_sigmoid(attended.floats, qkv_gate, column=qkv_gate.width - width)
        step.project_and_add("attn_output", self.output, attended, to)  # [T, hidden_size]


def load_qwen35(loader: Loader) -> Decoder:
    """Build the model of a ``qwen35`` file."""
    rotary = loader.rotary()

    def make_block(layer: int) -> PreNormBlock:
        is_recurrent = loader.config.is_recurrent(layer)
        return PreNormBlock(
            loader.norm(f"blk.{layer}.attn_norm"),
            DeltaNet(loader, layer) if is_recurrent else Qwen35Attention(loader, layer, rotary),
            loader.norm(f"blk.{layer}.post_attention_norm"),
            GatedMLP(loader.gate_up(layer), loader.down(layer), "silu"),
        )

    return Decoder(loader, make_block, [rotary])

"""Builds the parts of a model from its file."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from worker.compute_config import ComputeConfig
from worker.dequant_cache import WeightMatrix
from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import ModelFile
from worker.kernels.attention_arguments import AttentionSinks
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .config import DeltaConfig, ExpertsConfig, ModelConfig
from .embedding import Embedding
from .linear import Linear, PlannedLinear
from .norm import LayerNorm, Norm, RMSNorm
from .output_head import OutputHead
from .projections import Projections, ProjectionWeights, make_projections
from .rope_config import LONG_DIVISORS, SHORT_DIVISORS, RopeConfig
from .rotary import RotaryEmbedding
from .weight_units import layer_units
from .weights import Weights

Biases = Literal["no biases", "biases"]

_OUTPUT_NORM = "output_norm"
_POSITIONS = "position_embd.weight"
_ROPE_DIVISORS = "rope_freqs.weight"


class Loader:
    """Gives out a model's parts, each checked against the file.

    Projections are planned first; the weights of all are packed, or given room, when the head is
    asked for, which comes last.

    Attributes:
        config: hyperparameters.
        team: threads to compute with.
        stages: stage records.
    """

    config: ModelConfig
    team: ThreadTeam
    stages: Stages

    def __init__(
        self,
        gguf: ModelFile,
        config: ModelConfig,
        compute: ComputeConfig,
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        """Nothing is read yet."""
        self.config, self.team, self.stages = config, team, stages
        self._gguf, self._compute = gguf, compute
        self._weights = Weights(gguf, config)
        self._matrices: list[list[WeightMatrix]] = [[] for _ in range(config.num_layers)]

    def embedding(self) -> Embedding:
        """The token embedding."""
        return Embedding(self._gguf, self._weights.embedding(), self.config.embedding_scale)

    def position_embedding(self) -> Embedding:
        """The embedding of positions, for models that learn one."""
        c = self.config
        name = self._weights.lookup_table(_POSITIONS, c.context_length, c.hidden_size)
        return Embedding(self._gguf, name, 1.0)

    def norm(self, name: str, size: int | None = None) -> Norm:
        """The norm of tensors ``name.weight`` and, of its kind, ``name.bias``.

        Args:
            name: of the tensors.
            size: of the weight; by default as wide as a token.
        """
        return self._norm(name, size or self.config.hidden_size, 1.0)

    def optional_norm(self, name: str) -> Norm | None:
        """The norm of a token's values; None when the file has no such tensor."""
        return self.norm(name) if self._weights.has(f"{name}.weight") else None

    def norms_by_head(self, name: str, heads: int) -> Norm | None:
        """The norm of each head with weights [heads, head_dim] of its own, without biases.

        None when the file has no such tensor.
        """
        if not self._weights.has(f"{name}.weight"):
            return None
        c = self.config
        weight = self._weights.vectors(f"{name}.weight", heads, c.head_dim)
        if c.norm == "rms":
            return RMSNorm(weight, c.norm_eps)
        return LayerNorm(weight, None, c.norm_eps)

    def rms_norm(self, name: str, size: int | None = None) -> RMSNorm:
        """The norm of a tensor ``name.weight`` [size], by default as wide as a token."""
        weight = self._weights.vector(f"{name}.weight", size or self.config.hidden_size)
        return RMSNorm(weight, self.config.norm_eps)

    def qkv(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Queries, keys and values in one projection, as one tensor or three.

        Biases may be there or not, of each.
        """
        c = self.config
        sizes = [c.num_heads * c.head_dim] + [c.num_kv_heads * c.head_dim] * 2
        names = [f"blk.{layer}.attn_{part}" for part in "qkv"]
        fused = f"blk.{layer}.attn_qkv"
        if not any(self._weights.has(f"{name}.weight") for name in names):
            names, sizes = [fused], [sum(sizes)]
        return self.linear(layer, names, sizes, c.hidden_size, biases)

    def attention_output(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Back from the heads to a token's values."""
        c = self.config
        names = [f"blk.{layer}.attn_output"]
        return self.linear(layer, names, [c.hidden_size], c.num_heads * c.head_dim, biases)

    def gate_up(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Gate and up of the feed-forward layer in one projection."""
        c = self.config
        names = [f"blk.{layer}.ffn_{part}" for part in ("gate", "up")]
        return self.linear(layer, names, [c.intermediate_size] * 2, c.hidden_size, biases)

    def fused_gate_up(self, layer: int) -> Linear:
        """The same from one tensor, the gate above."""
        c = self.config
        name = f"blk.{layer}.ffn_up.weight"
        matrix = self._weights.halved_matrix(name, c.intermediate_size, c.hidden_size)
        return self._planned(layer, matrix, None)

    def up(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Up of a feed-forward layer without a gate."""
        c = self.config
        names = [f"blk.{layer}.ffn_up"]
        return self.linear(layer, names, [c.intermediate_size], c.hidden_size, biases)

    def down(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Back from the feed-forward layer to a token's values."""
        c = self.config
        names = [f"blk.{layer}.ffn_down"]
        return self.linear(layer, names, [c.hidden_size], c.intermediate_size, biases)

    def linear(
        self, layer: int, names: Sequence[str], sizes: Sequence[int], columns: int, biases: Biases
    ) -> Linear:
        """A projection of tensors [sizes[i], columns], stacked from top to bottom.

        Args:
            layer: that asks for it.
            names: of the tensors, without ``.weight``.
            sizes: rows of each.
            columns: of all.
            biases: whether there may be tensors ``name.bias``.

        Raises:
            GGUFError: a tensor is missing or has the wrong shape.
        """
        weights = [f"{name}.weight" for name in names]
        bias = None
        if biases == "biases":
            bias = self._weights.biases([f"{name}.bias" for name in names], sizes)
        return self._planned(layer, self._weights.matrix(weights, sizes, columns), bias)

    def attention_sinks(self, layer: int) -> AttentionSinks:
        """A score of each query head that has no value."""
        scores = self._weights.vector(f"blk.{layer}.attn_sinks.weight", self.config.num_heads)
        return AttentionSinks.of(scores, self.config.head_dim)

    def gated_qkv(self, layer: int) -> Linear:
        """Queries, keys, values, then a gate for each query head, in one projection.

        In the file, the gate of a head follows its query.
        """
        c, prefix = self.config, f"blk.{layer}.attn"
        heads, kv = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        queries = self._weights.matrix([f"{prefix}_q.weight"], [2 * heads], c.hidden_size)
        rest = [f"{prefix}_{part}.weight" for part in "kv"]
        keys_values = self._weights.matrix(rest, [kv, kv], c.hidden_size)
        runs = self._weights.cut(queries, c.head_dim)
        sources = (*runs[::2], *keys_values.sources, *runs[1::2])
        return self._planned(layer, WeightMatrix(sources, c.hidden_size), None)

    def delta_inputs(self, layer: int) -> Linear:
        """What a delta net computes from a token.

        Queries, keys and values; the gate of the result; rate and decay of each value head.
        """
        prefix, heads = f"blk.{layer}", self.delta.value_heads
        names = [f"{prefix}.{part}" for part in ("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha")]
        sizes = [self.delta.channels, self.delta.values, heads, heads]
        return self.linear(layer, names, sizes, self.config.hidden_size, "no biases")

    def delta_output(self, layer: int) -> Linear:
        """Back from a delta net's value heads to a token's values."""
        names, sizes = [f"blk.{layer}.ssm_out"], [self.config.hidden_size]
        return self.linear(layer, names, sizes, self.delta.values, "no biases")

    def convolution_kernel(self, layer: int) -> NDArray[np.float32]:
        """Weights of a delta net's convolution: [kernel_size, channels], the oldest token first."""
        name = f"blk.{layer}.ssm_conv1d.weight"
        kernel = self._weights.vectors(name, self.delta.channels, self.delta.kernel_size)
        return np.ascontiguousarray(kernel.T)

    def vector(self, name: str, size: int) -> NDArray[np.float32]:
        """A tensor of one dimension as float32 [size]."""
        return self._weights.vector(name, size)

    @property
    def delta(self) -> DeltaConfig:
        """Hyperparameters of the recurrent layers, for models that have some."""
        assert self.config.delta is not None, "the model has no recurrent layers"
        return self.config.delta

    def router(self, layer: int, biases: Biases = "no biases") -> Linear:
        """To a logit for each expert."""
        names, count = [f"blk.{layer}.ffn_gate_inp"], self.experts.count
        return self.linear(layer, names, [count], self.config.hidden_size, biases)

    def expert_gate_up(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Gate and up of all experts in one projection."""
        names = [f"blk.{layer}.ffn_{part}_exps" for part in ("gate", "up")]
        sizes = [self.experts.intermediate_size] * 2
        return self.expert_linear(layer, names, sizes, self.config.hidden_size, biases)

    def expert_down(self, layer: int, biases: Biases = "no biases") -> Linear:
        """Back from all experts to a token's values."""
        names, columns = [f"blk.{layer}.ffn_down_exps"], self.experts.intermediate_size
        return self.expert_linear(layer, names, [self.config.hidden_size], columns, biases)

    def expert_linear(
        self, layer: int, names: Sequence[str], sizes: Sequence[int], columns: int, biases: Biases
    ) -> Linear:
        """A projection of tensors [experts, sizes[i], columns], those of an expert stacked.

        See `linear`.
        """
        count, weights = self.experts.count, [f"{name}.weight" for name in names]
        bias = None
        if biases == "biases":
            bias = self._weights.expert_biases([f"{name}.bias" for name in names], count, sizes)
        matrix = self._weights.expert_matrix(weights, count, sizes, columns)
        return self._planned(layer, matrix, bias)

    @property
    def experts(self) -> ExpertsConfig:
        """Hyperparameters of the experts, for models that have some."""
        assert self.config.experts is not None, "the model has no experts"
        return self.config.experts

    def rotary(self, rope: RopeConfig | None = None) -> RotaryEmbedding:
        """A rotary embedding without divisors; by default that of layers with full attention.

        Raises:
            UnsupportedModelError: the file asks for divisors.
        """
        rope = rope or self._rope
        if rope.original_length is not None:
            raise UnsupportedModelError(
                f"{self._gguf.path}: positions are scaled by longrope, which tokenmill does not "
                f"compute in {self.config.architecture}; take a model without it"
            )
        return RotaryEmbedding(rope, self.config.context_length)

    def rotary_with_divisors(self) -> RotaryEmbedding:
        """The same whose frequencies the file may divide (Llama 3.1, LongRoPE)."""
        rope, length = self._rope, self.config.context_length
        if rope.original_length is None:
            has_divisors = self._weights.has(_ROPE_DIVISORS)
            divisors = self._divisors(_ROPE_DIVISORS) if has_divisors else None
            return RotaryEmbedding(rope, length, divisors)
        long = RotaryEmbedding(rope, length, self._divisors(LONG_DIVISORS))
        return RotaryEmbedding(rope, length, self._divisors(SHORT_DIVISORS), long)

    @cached_property
    def projections(self) -> Projections:
        """All that was planned, in the form that is multiplied; nothing can be planned after.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        layers = self._matrices
        largest = max(unit.n_bytes for layer in layers for unit in layer_units("", layer))
        head = self._weights.head(largest)
        weights = ProjectionWeights(self._gguf, layers, head, self._compute, self.team, self.stages)
        return make_projections(weights)

    def head(self) -> OutputHead:
        """Final norm and output head, which may be the embedding; asked for last.

        The factor on logits is in the norm.

        Raises:
            EngineConfigError: the bounds of the cache are too small.
        """
        norm = self._norm(_OUTPUT_NORM, self.config.hidden_size, self.config.logit_scale)
        return OutputHead(norm, self.projections.head(), self.config)

    def finish(self) -> None:
        """Check that the file holds nothing that was not asked for.

        Raises:
            UnsupportedModelError: naming a tensor that was not.
        """
        self._weights.finish()

    def _divisors(self, name: str) -> NDArray[np.float32]:
        """A tensor that frequencies are divided by: positive numbers."""
        divisors = self._weights.vector(name, self._rope.dimensions // 2)
        sound = np.isfinite(divisors) & (divisors > 0)
        if not sound.all():
            raise GGUFError(
                f"{self._gguf.path}: tensor {name} holds {divisors[~sound][0]:g}, expected "
                "positive numbers; convert the model again"
            )
        return divisors

    @property
    def _rope(self) -> RopeConfig:
        assert self.config.rope is not None, f"{self.config.architecture} rotates nothing"
        return self.config.rope

    def _norm(self, name: str, size: int, scale: float) -> Norm:
        factor = np.float32(scale)
        with np.errstate(over="ignore", invalid="ignore"):  # such rows are refused when sampled
            weight = self._weights.vector(f"{name}.weight", size) * factor
        if self.config.norm == "rms":
            return RMSNorm(weight, self.config.norm_eps)
        bias = self._weights.vector(f"{name}.bias", size) * factor
        return LayerNorm(weight, bias, self.config.norm_eps)

    def _planned(
        self, layer: int, matrix: WeightMatrix, bias: NDArray[np.float32] | None
    ) -> Linear:
        assert "projections" not in self.__dict__, "a projection after all were made"
        index = len(self._matrices[layer])
        self._matrices[layer].append(matrix)
        return PlannedLinear(matrix.shape[0], lambda: self.projections.linear(layer, index, bias))

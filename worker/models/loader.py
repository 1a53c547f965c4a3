"""Builds the parts of a model from its file."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worker.compute_config import ComputeConfig
from worker.errors import GGUFError
from worker.gguf import GGUFFile
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .config import ModelConfig, RopeConfig
from .embedding import Embedding
from .linear import Linear
from .norm import RMSNorm
from .output_head import OutputHead
from .projections import Projections, ProjectionWeights, make_projections
from .rotary import RotaryEmbedding
from .weights import Weights

_QKV, _ATTN_OUTPUT, _GATE_UP, _DOWN = range(4)  # matrices of a layer's unit, see Weights.layer
_ROPE_DIVISORS = "rope_freqs.weight"


class Loader:
    """Gives out a model's parts, each checked against the file.

    Attributes:
        config: hyperparameters.
        projections: everything that multiplies by a weight matrix.
    """

    config: ModelConfig
    projections: Projections

    def __init__(
        self,
        gguf: GGUFFile,
        config: ModelConfig,
        compute: ComputeConfig,
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        """Check the projections and bring them into the form that is multiplied.

        Raises:
            GGUFError: a projection is missing or has the wrong shape.
            EngineConfigError: the bounds of the cache are too small.
        """
        self.config = config
        self._gguf = gguf
        self._weights = Weights(gguf, config)
        layers = [self._weights.layer(layer) for layer in range(config.num_layers)]
        head = self._weights.head(max(unit.n_bytes for unit in layers))
        weights = ProjectionWeights(gguf, layers, head, compute, team, stages)
        self.projections = make_projections(weights)

    def embedding(self) -> Embedding:
        """The token embedding."""
        return Embedding(self._gguf, self._weights.embedding(), self.config.embedding_scale)

    def norm(self, name: str, size: int | None = None) -> RMSNorm:
        """The norm of a weight [size], by default as wide as a token."""
        weight = self._weights.vector(name, size or self.config.hidden_size)
        return RMSNorm(weight, self.config.rms_norm_eps)

    def qkv(self, layer: int) -> Linear:
        """Queries, keys and values in one projection."""
        c = self.config
        sizes = [c.num_heads * c.head_dim] + [c.num_kv_heads * c.head_dim] * 2
        names = [f"blk.{layer}.attn_{part}.bias" for part in "qkv"]
        return self._linear(layer, _QKV, names, sizes)

    def attention_output(self, layer: int) -> Linear:
        """Back from the heads to a token's values."""
        names = [f"blk.{layer}.attn_output.bias"]
        return self._linear(layer, _ATTN_OUTPUT, names, [self.config.hidden_size])

    def gate_up(self, layer: int) -> Linear:
        """Gate and up of the feed-forward layer in one projection."""
        names = [f"blk.{layer}.ffn_{part}.bias" for part in ("gate", "up")]
        return self._linear(layer, _GATE_UP, names, [self.config.intermediate_size] * 2)

    def down(self, layer: int) -> Linear:
        """Back from the feed-forward layer to a token's values."""
        names = [f"blk.{layer}.ffn_down.bias"]
        return self._linear(layer, _DOWN, names, [self.config.hidden_size])

    def rotary(self, rope: RopeConfig) -> RotaryEmbedding:
        """A rotary embedding without divisors."""
        return RotaryEmbedding(rope, self.config.context_length)

    def rotary_with_divisors(self, rope: RopeConfig) -> RotaryEmbedding:
        """A rotary embedding whose frequencies the file may divide (Llama 3.1)."""
        divisors = self._weights.optional_vector(_ROPE_DIVISORS, rope.dimensions // 2)
        _check_divisors(self._gguf, divisors)
        return RotaryEmbedding(rope, self.config.context_length, divisors)

    def head(self) -> OutputHead:
        """Final norm and output head, which may be the embedding."""
        norm = self.norm("output_norm.weight")
        return OutputHead(norm, self.projections.head(), self.config)

    def finish(self) -> None:
        """Check that the file holds nothing that was not asked for.

        Raises:
            UnsupportedModelError: naming a tensor that was not.
        """
        self._weights.finish()

    def _linear(
        self, layer: int, matrix: int, biases: Sequence[str], sizes: Sequence[int]
    ) -> Linear:
        return self.projections.linear(layer, matrix, self._weights.biases(biases, sizes))


def _check_divisors(gguf: GGUFFile, divisors: NDArray[np.float32] | None) -> None:
    """Frequencies are divided by these: they must be positive numbers."""
    if divisors is not None and not (np.isfinite(divisors) & (divisors > 0)).all():
        bad = divisors[~(np.isfinite(divisors) & (divisors > 0))][0]
        raise GGUFError(
            f"{gguf.path}: tensor {_ROPE_DIVISORS} holds {bad:g}, expected positive numbers; "
            "convert the model again"
        )

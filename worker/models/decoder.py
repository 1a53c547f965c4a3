"""The frame that every decoder shares: embedding, layers, output head."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvpool import KVCache, LayerGroup
from worker.dequant_cache import DequantCache
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .batch import Batch
from .config import ModelConfig
from .loader import Loader
from .logits import Logits
from .rotary import RotaryEmbedding
from .step import Step
from .workspace import Workspace


class Block(Protocol):
    """One transformer layer."""

    def __call__(self, x: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
        """Take x [T, hidden_size] through the layer; may change and return x itself."""


class Decoder:
    """Runs batches through a model's layers. Implements `Model`; one step at a time.

    Attributes: see `Model`.
    """

    config: ModelConfig
    layer_groups: tuple[LayerGroup, ...]
    numerics: str
    dequant_cache: DequantCache

    def __init__(
        self,
        loader: Loader,
        make_block: Callable[[int], Block],
        rotaries: Sequence[RotaryEmbedding],
        team: ThreadTeam,
        stages: Stages,
    ) -> None:
        """Build embedding, layers and head.

        Args:
            loader: of the model's file.
            make_block: builds a layer by its index.
            rotaries: the layers' rotary embeddings, to be extended as positions grow.
            team: threads to compute with.
            stages: stage records.
        """
        self.config = loader.config
        self.layer_groups = layer_groups(loader.config)
        self.numerics = f"f32, {loader.matmul.numerics}"
        self.dequant_cache = loader.cache
        self._embedding = loader.embedding()
        self._blocks = [make_block(layer) for layer in range(loader.config.num_layers)]
        self._head = loader.head()
        self._rotaries = rotaries
        self._workspace = Workspace()
        self._team = team
        self._stages = stages
        loader.finish()

    def forward(self, batch: Batch, kv: KVCache) -> Logits:
        """Compute a step, see `Model.forward`.

        A row with numbers that are not finite is the sampler's to refuse, not NumPy's to warn of.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._forward(batch, kv)

    def _forward(self, batch: Batch, kv: KVCache) -> Logits:
        step = self._begin(batch, kv)
        with self._stages.stage("embedding") as record:
            x = self._embedding(batch.token_ids, step.array("x", self.config.hidden_size))
            record.output(x)
        for block in self._blocks:
            x = block(x, step)
        return self._head(x, step)

    def _begin(self, batch: Batch, kv: KVCache) -> Step:
        slots = [keys.shape[1] * kv.block_size for keys in kv.keys]
        batch.check(self.config.vocab_size, self.config.context_length, slots)
        for rotary in self._rotaries:
            rotary.reach(int(batch.positions.max()))
        self.dequant_cache.begin_step()
        return Step(batch, kv, self.layer_groups, self._workspace, self._team, self._stages)


def layer_groups(config: ModelConfig) -> tuple[LayerGroup, ...]:
    """Layers that see the same positions share block tables: full attention first, then windows."""
    windows = sorted(set(config.windows), key=lambda window: (window is not None, window or 0))
    return tuple(
        LayerGroup(
            name="full" if window is None else f"window-{window}",
            layers=tuple(i for i, w in enumerate(config.windows) if w == window),
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            window=window,
        )
        for window in windows
    )

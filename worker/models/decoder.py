"""The frame that every decoder shares: embedding, layers, output head."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kvpool import KVCache, LayerGroup, StateShape
from worker.dequant_cache import DequantCache

from .batch import Batch
from .batch_memory import Capacity
from .config import ModelConfig
from .embedding import Embedding
from .head_memory import HeadMemory
from .loader import Loader
from .logits import Logits
from .projections import Projections
from .rotary import RotaryEmbedding
from .step import Step
from .workspace import Memory


class Block(Protocol):
    """One transformer layer."""

    def __call__(self, x: Memory, step: Step) -> None:
        """Record how x [T, hidden_size] is taken through the layer, in place."""


class Decoder:
    """Runs batches through a model's layers. Implements `Model`; one step at a time.

    The layers are recorded once as a program, and again only when a batch needs more memory than
    any before it.

    Attributes: see `Model`; besides
        projections: everything that multiplies by a weight matrix.
    """

    config: ModelConfig
    layer_groups: tuple[LayerGroup, ...]
    projections: Projections
    state_shape: StateShape | None
    numerics: str
    dequant_cache: DequantCache

    def __init__(
        self,
        loader: Loader,
        make_block: Callable[[int], Block],
        rotaries: Sequence[RotaryEmbedding],
        positions: Embedding | None = None,
    ) -> None:
        """Build embedding, layers and head.

        Args:
            loader: of the model's file.
            make_block: builds a layer by its index.
            rotaries: the layers' rotary embeddings, to be extended as positions grow.
            positions: what is added to a token's embedding for its position; None for nothing.

        Raises:
            GGUFError: a tensor is missing or has the wrong shape.
            UnsupportedModelError: the file has a tensor that was not asked for.
            EngineConfigError: the bounds of the dequant cache are too small.
        """
        self.config = loader.config
        self.layer_groups = layer_groups(loader.config)
        self.state_shape = state_shape(loader.config)
        self._embedding, self._positions = loader.embedding(), positions
        self._blocks = [make_block(layer) for layer in range(loader.config.num_layers)]
        self._head = loader.head()
        self.projections = loader.projections
        self.numerics = self.projections.numerics
        self.dequant_cache = self.projections.cache
        self._rotaries = [each for rotary in rotaries for each in rotary.all]
        self._team, self._stages = loader.team, loader.stages
        self._recording: _Recording | None = None
        loader.finish()

    def forward(self, batch: Batch, kv: KVCache) -> Logits:
        """Compute a step, see `Model.forward`.

        A row with numbers that are not finite is the sampler's to refuse, not NumPy's to warn of.
        """
        slots = [keys.shape[1] * kv.block_size for keys in kv.keys]
        states = 0 if kv.states is None else kv.states.slots
        batch.check(self.config.vocab_size, self.config.context_length, slots, states)
        recording = self._recording_for(batch, kv)
        step = recording.step
        step.memory.load(batch, step.program.header, self._team.threads)
        for rotary in self._rotaries:
            rotary.reach(int(batch.positions.max()))
        step.point_at_tables()
        self.dequant_cache.begin_step()
        with np.errstate(over="ignore", invalid="ignore"), _changing_states(batch, kv):
            step.program.run()
        return recording.head.read(batch.keep_logits)

    def _recording_for(self, batch: Batch, kv: KVCache) -> "_Recording":
        """The recorded step, made anew if it does not fit the batch."""
        have, needed = self._recording, Capacity.of(batch)
        if have is not None and have.kv is kv and have.capacity.holds(needed):
            return have
        capacity = needed if have is None else have.capacity.grown(needed)
        self._recording = None  # its memory can go before there is new
        self._recording = self._record(capacity, kv)
        return self._recording

    def _record(self, capacity: Capacity, kv: KVCache) -> "_Recording":
        step = Step(
            capacity,
            kv,
            self.layer_groups,
            self._rotaries,
            self._team,
            self._stages,
            self.config.experts,
        )
        x = step.embed(self._embedding)
        if self._positions is not None:
            step.add_positions(x, self._positions)
        for block in self._blocks:
            block(x, step)
        head = self._head(x, step)
        step.program.finish()
        return _Recording(step, head, kv, capacity)


@contextmanager
def _changing_states(batch: Batch, kv: KVCache) -> Iterator[None]:
    """Take note of what happens to the sequences' recurrent states, if there are any."""
    states, slots = kv.states, batch.state_slots
    if states is None or slots is None:
        yield
        return
    states.begin_step(slots, batch.positions[batch.query_start[:-1]])
    yield
    states.end_step(slots, batch.positions[batch.query_start[1:] - 1] + 1)


@dataclass(frozen=True, slots=True)
class _Recording:
    """A recorded step, where its logits are, and what it was recorded for."""

    step: Step
    head: HeadMemory
    kv: KVCache
    capacity: Capacity


def layer_groups(config: ModelConfig) -> tuple[LayerGroup, ...]:
    """Layers that see the same positions share block tables: full attention first, then windows."""
    has_keys = [i for i in range(config.num_layers) if not config.is_recurrent(i)]
    windows = {config.windows[i] for i in has_keys}
    return tuple(
        LayerGroup(
            name="full" if window is None else f"window-{window}",
            layers=tuple(i for i in has_keys if config.windows[i] == window),
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            window=window,
        )
        for window in sorted(windows, key=lambda window: (window is not None, window or 0))
    )


def state_shape(config: ModelConfig) -> StateShape | None:
    """The recurrent state of the layers that have one."""
    delta = config.delta
    if delta is None:
        return None
    return StateShape(
        layers=tuple(i for i in range(config.num_layers) if config.is_recurrent(i)),
        inputs=delta.kernel_size - 1,
        channels=delta.channels,
        heads=delta.value_heads,
        key_dim=delta.key_dim,
        value_dim=delta.value_dim,
    )

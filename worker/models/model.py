"""What the engine asks of a model."""

from typing import Protocol

from kvpool import KVCache, LayerGroup, StateShape
from worker.dequant_cache import DequantCache

from .batch import Batch
from .config import ModelConfig
from .logits import Logits


class Model(Protocol):
    """A decoder loaded from a GGUF file.

    A row of logits depends on the tokens of its sequence alone, bit for bit: not on the other
    sequences of the batch, on how a prompt was cut into chunks, or on the number of threads.

    Attributes:
        config: hyperparameters.
        layer_groups: layers that share block tables, in the order of a batch's slots and tables.
        state_shape: recurrent state of a sequence; None where no layer has one.
        numerics: identity of the arithmetic; equal identities give equal bits.
        dequant_cache: the weights' cache, for its counters.
    """

    config: ModelConfig
    layer_groups: tuple[LayerGroup, ...]
    state_shape: StateShape | None
    numerics: str
    dequant_cache: DequantCache

    def forward(self, batch: Batch, kv: KVCache) -> Logits:
        """Compute a step: write the batch's keys and values, give the logits asked for.

        Args:
            batch: the new tokens.
            kv: the pool of all sequences in flight.

        Returns:
            Those of batch.logit_rows, with at least the rows of batch.keep_logits kept;
            overwritten by the next step.
        """

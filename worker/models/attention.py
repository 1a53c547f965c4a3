"""Attention as most families have it; what differs between them is said when it is built."""

from typing import Literal

from worker.kernels.attention_arguments import AttentionSinks

from .loader import Loader
from .rotary import RotaryEmbedding
from .rows import Rows
from .step import Step
from .workspace import Memory

AttentionBiases = Literal["none", "qkv", "all"]


class Attention:
    """Grouped-query attention."""

    def __init__(
        self,
        loader: Loader,
        layer: int,
        rotary: RotaryEmbedding | None,
        *,
        biases: AttentionBiases = "none",
        head_norms: bool = False,
        sinks: AttentionSinks | None = None,
    ) -> None:
        """Ask for the projections.

        Args:
            loader: of the model's file.
            layer: index of the layer.
            rotary: rotates queries and keys; None for no rotation.
            biases: projections that may have one.
            head_norms: whether queries and keys are normalised, head by head.
            sinks: scores of the query heads without values; None for none.
        """
        self.config = loader.config
        self.layer = layer
        self.rotary = rotary
        self.sinks = sinks
        self.qkv = loader.qkv(layer, "no biases" if biases == "none" else "biases")
        self.query_norm = self.key_norm = None
        if head_norms:
            self.query_norm = loader.rms_norm(f"blk.{layer}.attn_q_norm", self.config.head_dim)
            self.key_norm = loader.rms_norm(f"blk.{layer}.attn_k_norm", self.config.head_dim)
        self.output = loader.attention_output(layer, "biases" if biases == "all" else "no biases")

    def __call__(self, x: Rows, step: Step) -> Memory:
        """Attend from x [T, hidden_size]; the result is as wide."""
        return step.project("attn_output", self.output, self.heads(x, step))

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Attend from x, and add the result to `to`."""
        step.project_and_add("attn_output", self.output, self.heads(x, step), to)

    def heads(self, x: Rows, step: Step) -> Rows:
        """What each head attends to from x: [T, H * D]."""
        c = self.config
        qkv = step.project("attn_qkv", self.qkv, x)  # [T, (H + 2 KV) * D]
        self.normalize(qkv, step)
        step.rotate_and_write(
            self.layer, qkv, self.rotary, c.num_heads, self.query_norm, self.key_norm
        )
        width = c.num_heads * c.head_dim
        factors = c.attention_scale, c.attention_cap
        return step.attend(self.layer, qkv, width, *factors, self.sinks)

    def normalize(self, qkv: Memory, step: Step) -> None:
        """Normalise queries and keys in another way than head by head with one weight."""

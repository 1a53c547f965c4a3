"""Layers by where their norms stand; each adds attention and feed-forward to its input in turn."""

from typing import Protocol

from .norm import Norm, RMSNorm
from .rows import Rows
from .step import Step
from .workspace import Memory


class Part(Protocol):
    """Attention, or a feed-forward layer."""

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x [T, hidden_size], and add the result to `to`."""


class PartBeforeNorm(Protocol):
    """The same where the result is normalised before it is added."""

    def __call__(self, x: Rows, step: Step) -> Memory:
        """Apply to x [T, hidden_size]; the result is as wide."""


class PreNormBlock:
    """Norms stand before attention and feed-forward (Llama and most others)."""

    def __init__(self, attention_norm: Norm, attention: Part, mlp_norm: Norm, mlp: Part) -> None:
        self.attention_norm, self.attention = attention_norm, attention
        self.mlp_norm, self.mlp = mlp_norm, mlp

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        self.attention.add(step.norm(self.attention_norm, x), step, to=x)
        self.mlp.add(step.norm(self.mlp_norm, x), step, to=x)


class SandwichBlock:
    """Norms stand before and after both (Gemma 2 and 3)."""

    def __init__(
        self,
        attention_norm: Norm,
        attention: PartBeforeNorm,
        post_attention_norm: RMSNorm,
        mlp_norm: Norm,
        mlp: PartBeforeNorm,
        post_mlp_norm: RMSNorm,
    ) -> None:
        self.attention_norm, self.attention = attention_norm, attention
        self.post_attention_norm = post_attention_norm
        self.mlp_norm, self.mlp = mlp_norm, mlp
        self.post_mlp_norm = post_mlp_norm

    def __call__(self, x: Memory, step: Step) -> None:
        """Add both to x [T, hidden_size]."""
        attended = self.attention(step.norm(self.attention_norm, x), step)
        step.add(x, attended, self.post_attention_norm)
        transformed = self.mlp(step.norm(self.mlp_norm, x), step)
        step.add(x, transformed, self.post_mlp_norm)

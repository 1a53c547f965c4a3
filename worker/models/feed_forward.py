"""The two kinds of feed-forward layers."""

from worker.kernels.gated_activation import Activation

from .linear import Linear
from .rows import Rows
from .step import Step
from .workspace import Memory


class GatedMLP:
    """down(activation(gate(x)) * up(x)) (Shazeer, 2020)."""

    def __init__(self, gate_up: Linear, down: Linear, activation: Activation) -> None:
        self.gate_up, self.down, self.activation = gate_up, down, activation

    def __call__(self, x: Rows, step: Step) -> Memory:
        """Apply to x [T, hidden_size]; the result is as wide."""
        return step.project("ffn_down", self.down, self.inner(x, step))

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x, and add the result to `to`."""
        step.project_and_add("ffn_down", self.down, self.inner(x, step), to)

    def inner(self, x: Rows, step: Step) -> Rows:
        """activation(gate(x)) * up(x): [T, intermediate_size]."""
        return step.gate(self.gate_up, x, self.activation)


class PlainMLP:
    """down(activation(up(x)))."""

    def __init__(self, up: Linear, down: Linear, activation: Activation) -> None:
        self.up, self.down, self.activation = up, down, activation

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x [T, hidden_size], and add the result to `to`."""
        up = step.project("ffn_up", self.up, x)  # [T, intermediate_size]
        step.project_and_add("ffn_down", self.down, step.activate(up, self.activation), to)

"""Gated delta net (Yang et al., 2024): a layer with a memory of fixed size instead of keys.

Queries, keys and values pass a short convolution over the last tokens; then each head reads and
corrects its memory token by token, see `kernels.delta_rule`.
"""

from worker.kernels.delta_rule import delta_rule_task, scratch_bytes
from worker.kernels.native import address_of, real_word
from worker.kernels.short_convolution import CHANNELS_AN_ITEM, convolution_task

from .batch_memory import SEQUENCES
from .loader import Loader
from .rows import Rows
from .step import Step
from .workspace import Memory


class DeltaNet:
    """The layer's projections, convolution and heads."""

    def __init__(self, loader: Loader, layer: int) -> None:
        self.config, self.layer = loader.delta, layer
        self.inputs = loader.delta_inputs(layer)
        self.kernel = loader.convolution_kernel(layer)  # [kernel_size, channels]
        self.decay = loader.vector(f"blk.{layer}.ssm_a", self.config.value_heads)
        self.decay_bias = loader.vector(f"blk.{layer}.ssm_dt.bias", self.config.value_heads)
        self.norm = loader.rms_norm(f"blk.{layer}.ssm_norm", self.config.value_dim)
        self.output = loader.delta_output(layer)

    def add(self, x: Rows, step: Step, to: Memory) -> None:
        """Apply to x [T, hidden_size], and add the result to `to`."""
        mixed = step.project("delta_inputs", self.inputs, x)  # [T, channels + gates]
        qkv = self._convolve(mixed, step)  # [T, channels]
        step.project_and_add("delta_output", self.output, self._read(qkv, mixed, step), to)

    def _convolve(self, mixed: Memory, step: Step) -> Memory:
        """Record the convolution of queries, keys and values."""
        c = self.config
        out, states = step.floats("convolved", c.channels), step.states
        parts = -(-c.channels // CHANNELS_AN_ITEM)
        words = (
            *(mixed.address, mixed.stride, out.address, out.stride),
            *(address_of(self.kernel), c.channels, c.kernel_size - 1),
            address_of(states.inputs[states.layer(self.layer)]),
            *_batch_words(step),
            parts,
        )
        step.program.add_task(
            "convolution", convolution_task, words, items=parts, items_word=SEQUENCES
        )
        return out

    def _read(self, qkv: Memory, mixed: Memory, step: Step) -> Rows:
        """Record what the heads read: [T, value_heads * value_dim]."""
        c, states = self.config, step.states
        thread_bytes = scratch_bytes(c.key_dim)
        scratch = step.floats("delta scratch", step.threads * thread_bytes // 4)

        def record(out: Memory) -> None:
            words = (
                *(qkv.address, qkv.stride, mixed.address + 4 * c.channels, mixed.stride),
                *(out.address, out.stride, address_of(self.decay), address_of(self.decay_bias)),
                *(address_of(self.norm.weight), real_word(self.norm.eps)),
                *(c.key_heads, c.value_heads, c.key_dim, c.value_dim),
                address_of(states.memories[states.layer(self.layer)]),
                *_batch_words(step),
                *(scratch.address, thread_bytes),
            )
            step.program.add_task(
                "delta_rule", delta_rule_task, words, items=c.value_heads, items_word=SEQUENCES
            )

        return step.computed_rows("delta", c.values, record)


def _batch_words(step: Step) -> tuple[int, int, int]:
    """Where the sequences' states, tokens and positions are."""
    memory = step.memory
    return (
        address_of(memory.state_slots),
        address_of(memory.query_start),
        address_of(memory.positions),
    )

"""The output head over packed weights."""

from worker.kernels.argmax_task import BEST_BYTES, argmax_task
from worker.kernels.head_task import head_task
from worker.kernels.native import address_of, real_word

from .batch_memory import LOGIT_ROWS
from .config import ModelConfig
from .head_memory import HeadMemory
from .linear import PackedPart, flat_items, scratch
from .rows import Rows
from .step import Step


class PackedHead:
    """Projects to the vocabulary and finds the best tokens in one task."""

    def __init__(self, part: PackedPart) -> None:
        self._part = part

    def record(self, step: Step, x: Rows, memory: HeadMemory, config: ModelConfig) -> None:
        """Record the head.

        Args:
            step: what is recorded.
            x: normalised logit rows.
            memory: receives logits and best tokens.
            config: hyperparameters.
        """
        source = x.records if self._part.takes_records else x.floats
        items = self._part.items(self._part.row_blocks, step.threads)
        row_bytes = BEST_BYTES * x.row_set.capacity
        bests = step.floats("head bests", len(items) * BEST_BYTES // 4, x.row_set).address
        words = [
            *(source.address, source.stride, memory.logits.address, memory.logits.stride),
            *(LOGIT_ROWS, address_of(step.memory.keep_logits)),
            *(real_word(config.logit_cap or 0.0), config.num_tokens),
            *(bests, row_bytes, scratch(step)),
        ]
        step.program.add_task("lm_head", head_task, [*words, *flat_items(items)], items=len(items))
        found = address_of(memory.best_token), address_of(memory.best_value)
        arguments = (bests, len(items), row_bytes, *found)
        step.program.add_task("lm_head", argmax_task, arguments, items_word=LOGIT_ROWS)

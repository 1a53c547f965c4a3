"""Weights in MXFP4 as Hugging Face stores them: nibbles and scales in tensors of their own."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from gguf.constants import GGMLQuantizationType

from worker.errors import CheckpointError
from worker.gguf.wording import shown

from .readings import Bytes, Shape, Stored

BLOCKS, SCALES = "_blocks", "_scales"
_BLOCK = 32  # values


@dataclass(frozen=True, slots=True)
class Mxfp4:
    """A stack of matrices; of the rows of each, every ``step``-th from ``start`` on.

    Attributes:
        blocks: uint8 [experts, rows, blocks, 16]; byte j of a block holds values 2 j and 2 j + 1.
        scales: uint8 [experts, rows, blocks]: exponents.
        start: first row.
        step: from row to row.
    """

    blocks: Stored
    scales: Stored
    start: int = 0
    step: int = 1

    @property
    def shape(self) -> Shape:
        """[experts, rows / step, columns]."""
        experts, rows, count, _ = self.blocks.shape
        return experts, len(range(self.start, rows, self.step)), count * _BLOCK

    @property
    def qtype(self) -> GGMLQuantizationType:
        """MXFP4."""
        return GGMLQuantizationType.MXFP4

    def rows(self, first: int, last: int) -> Bytes:
        """Rows as GGUF has them: in a block the scale, then byte j with values j and j + 16."""
        experts, rows, count, _ = self.blocks.shape
        order = np.arange(experts * rows).reshape(experts, rows)[:, self.start :: self.step]
        chosen = order.reshape(-1)[first:last]
        blocks = self.blocks.items().view(np.uint8)
        nibbles = blocks.reshape(-1, count, _BLOCK // 2)[chosen]
        values = np.stack([nibbles & 15, nibbles >> 4], axis=-1).reshape(-1, count, _BLOCK)
        half = _BLOCK // 2
        packed = values[..., :half] | values[..., half:] << 4
        scales = self.scales.items().reshape(-1, count, 1)[chosen]
        return np.concatenate([scales, packed], axis=-1).reshape(len(chosen), -1)

    def release(self) -> None:
        """Both."""
        self.blocks.release()
        self.scales.release()


def joined_mxfp4(stored: Mapping[str, Stored]) -> tuple[dict[str, Mxfp4], dict[str, Stored]]:
    """Take the tensors in MXFP4 out: those by name without ending, and the other tensors.

    Raises:
        CheckpointError: blocks have no scales, or the two do not fit each other.
    """
    found: dict[str, Mxfp4] = {}
    others = dict(stored)
    for name in [name for name in stored if name.endswith(BLOCKS)]:
        stem = name.removesuffix(BLOCKS)
        blocks, scales = others.pop(name), others.pop(stem + SCALES, None)
        if scales is None or not _fit(blocks, scales):
            raise CheckpointError(
                f"{blocks.file.path}: tensor {shown(name)} has no {SCALES} that fit it; copy or "
                "download the folder again"
            )
        found[stem] = Mxfp4(blocks, scales)
    return found, others


def _fit(blocks: Stored, scales: Stored) -> bool:
    return (
        blocks.info.dtype == scales.info.dtype == "U8"
        and len(blocks.shape) == 4
        and blocks.shape == (*scales.shape, _BLOCK // 2)
        and blocks.info.n_bytes > 0
    )

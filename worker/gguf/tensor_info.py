"""Where a tensor lies and what it looks like."""

from dataclasses import dataclass
from math import prod

from gguf.constants import GGMLQuantizationType

from .quant_types import row_bytes


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One line of the tensor table, checked against the file.

    Attributes:
        name: as in the file, e.g. ``blk.0.attn_q.weight``.
        shape: in NumPy's order, slowest dimension first: ``(rows, columns)`` for a matrix. A
            GGUF file stores it the other way round.
        qtype: how the values are stored.
        offset: of the first byte, from the start of its file.
        shard: which file of a split model holds it, from 0; 0 for a model in one file.
    """

    name: str
    shape: tuple[int, ...]
    qtype: GGMLQuantizationType
    offset: int
    shard: int = 0

    @property
    def columns(self) -> int:
        """Values of a row, the fastest dimension."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows when all slower dimensions are flattened; 1 for a vector."""
        return prod(self.shape[:-1])

    @property
    def n_values(self) -> int:
        """Number of values."""
        return prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return row_bytes(self.columns, self.qtype)

    @property
    def n_bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.row_bytes

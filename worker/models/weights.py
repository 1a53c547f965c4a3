"""A model's weights in the file: what is read at once, what goes through the dequant cache.

Quirks of checkpoints are settled here, so that model files need not know them: which tensors may be
missing, what is stacked into one matrix, and that no tensor of the file is left unused, since that
would mean another computation than the one the file was made for.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from worker.dequant_cache import TensorRows, WeightMatrix
from worker.errors import UnsupportedModelError
from worker.gguf import ModelFile, dequantize
from worker.gguf.wording import shown

from .config import EMBEDDING, OUTPUT, ModelConfig

# Tensors that old converters wrote and no engine reads: the angles follow from the metadata.
_REDUNDANT = ("attn_rot_embd.weight", "attn.rot_embd.weight")
_SLICE_ROWS = 16  # slices of a tensor begin at multiples of this


class Weights:
    """Takes tensors out of a file by name and shape, and remembers which.

    Attributes:
        gguf: the file.
        config: hyperparameters the shapes follow from.
    """

    gguf: ModelFile
    config: ModelConfig

    def __init__(self, gguf: ModelFile, config: ModelConfig) -> None:
        self.gguf = gguf
        self.config = config
        self._used: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self.gguf.tensors

    def vector(self, name: str, size: int) -> NDArray[np.float32]:
        """A tensor of one dimension as float32 [size], for good."""
        return self._values(name, (size,)).reshape(size)

    def optional_vector(self, name: str, size: int) -> NDArray[np.float32] | None:
        """The same, None when the file has no such tensor."""
        return self.vector(name, size) if self.has(name) else None

    def vectors(self, name: str, count: int, size: int) -> NDArray[np.float32]:
        """A tensor of two dimensions as float32 [count, size], for good."""
        return self._values(name, (count, size)).reshape(count, size)

    def biases(self, names: Sequence[str], sizes: Sequence[int]) -> NDArray[np.float32] | None:
        """Biases of stacked projections, zeros where one has none; None when none has."""
        parts = [self.optional_vector(n, size) for n, size in zip(names, sizes, strict=True)]
        if all(part is None for part in parts):
            return None
        return np.concatenate(
            [
                np.zeros(size, np.float32) if part is None else part
                for part, size in zip(parts, sizes, strict=True)
            ]
        )

    def matrix(self, names: Sequence[str], rows: Sequence[int], columns: int) -> WeightMatrix:
        """Tensors [rows[i], columns] stacked from top to bottom."""
        for name, count in zip(names, rows, strict=True):
            self.lookup_table(name, count, columns)
        sources = [TensorRows(name, 0, count) for name, count in zip(names, rows, strict=True)]
        return WeightMatrix(tuple(sources), columns)

    def halved_matrix(self, name: str, rows: int, columns: int) -> WeightMatrix:
        """A tensor [2 * rows, columns] as its two halves, where it can be cut between them."""
        self.lookup_table(name, 2 * rows, columns)
        cuts = [0, rows, 2 * rows] if rows % _SLICE_ROWS == 0 else [0, 2 * rows]
        sources = [TensorRows(name, a, b) for a, b in pairwise(cuts)]
        return WeightMatrix(tuple(sources), columns)

    def expert_matrix(
        self, names: Sequence[str], experts: int, rows: Sequence[int], columns: int
    ) -> WeightMatrix:
        """Tensors [experts, rows[i], columns], those of an expert stacked from top to bottom."""
        for name, count in zip(names, rows, strict=True):
            self.gguf.tensor(name, (experts, count, columns))
            self._used.add(name)
        sources = [TensorRows(name, 0, count) for name, count in zip(names, rows, strict=True)]
        return WeightMatrix(tuple(sources), columns, experts)

    def expert_biases(
        self, names: Sequence[str], experts: int, sizes: Sequence[int]
    ) -> NDArray[np.float32]:
        """Biases of stacked projections of all experts: [experts, sum of sizes]."""
        parts = [self.vectors(n, experts, size) for n, size in zip(names, sizes, strict=True)]
        return np.concatenate(parts, axis=1)

    def cut(self, matrix: WeightMatrix, rows: int) -> list[TensorRows]:
        """A matrix of one tensor as runs of so many rows."""
        (source,) = matrix.sources
        cuts = range(source.first, source.last + 1, rows)
        return [TensorRows(source.name, first, last) for first, last in pairwise(cuts)]

    def lookup_table(self, name: str, rows: int, columns: int) -> str:
        """A tensor [rows, columns] that stays in the file; gives its name."""
        self.gguf.tensor(name, (rows, columns))
        self._used.add(name)
        return name

    def embedding(self) -> str:
        """Name of the embedding, its shape checked."""
        return self.lookup_table(EMBEDDING, self.config.vocab_size, self.config.hidden_size)

    def head(self, unit_bytes: int) -> list[WeightMatrix]:
        """The output head (the embedding itself if the file has no other), cut by rows.

        Args:
            unit_bytes: bytes of the largest unit of the layers in the dequant cache; a slice is
                about as large, so that the cache's ring stays small.
        """
        name = EMBEDDING if self.config.tied_embeddings else OUTPUT
        total, columns = self.config.vocab_size, self.config.hidden_size
        self.matrix([name], [total], columns)
        count = max(1, round(total * columns * 4 / unit_bytes))
        rows = -(-total // count)
        rows = -(-rows // _SLICE_ROWS) * _SLICE_ROWS
        return [
            WeightMatrix((TensorRows(name, first, min(first + rows, total)),), columns)
            for first in range(0, total, rows)
        ]

    def finish(self) -> None:
        """Check that every tensor of the file was taken.

        Raises:
            UnsupportedModelError: naming one that was not.
        """
        left = [
            name
            for name in self.gguf.tensors
            if name not in self._used and not self._means_nothing(name)
        ]
        if left:
            raise UnsupportedModelError(
                f"{self.gguf.path}: tensor {shown(left[0])} ({len(left)} in all) has no place in "
                f"architecture {self.config.architecture} as tokenmill computes it; leaving it out "
                "would change the results: take a model without it"
            )

    def _means_nothing(self, name: str) -> bool:
        """Whether a tensor says nothing about the next token."""
        c = self.config
        guessing = range(c.num_layers, c.num_layers + c.guessing_layers)
        return name.endswith(_REDUNDANT) or name.startswith(tuple(f"blk.{i}." for i in guessing))

    def _values(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """A tensor as float32 [rows, columns]."""
        info = self.gguf.tensor(name, shape)
        self._used.add(name)
        values = np.empty((info.rows, info.shape[-1]), np.float32)
        dequantize(self.gguf.raw(name), info.qtype, values)
        return values

"""Token embeddings, read straight from the file."""

import numpy as np
from numpy.typing import NDArray

from worker.gguf import ModelFile, dequantize


class Embedding:
    """Rows of the embedding matrix, dequantised only when a token asks for them.

    Attributes:
        width: values of a row.
    """

    width: int

    def __init__(self, gguf: ModelFile, name: str, scale: float) -> None:
        """Keep the place of the matrix.

        Args:
            gguf: the file.
            name: tensor [vocabulary, hidden_size].
            scale: factor on every value.
        """
        self._gguf = gguf
        self._name = name
        self._qtype = gguf.tensor(name).qtype
        self.width = gguf.tensor(name).shape[1]
        self._scale = np.float32(scale)

    def __call__(
        self, token_ids: NDArray[np.int32], out: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Write the embeddings of ids [tokens] into `out` [tokens, hidden_size] and return it."""
        rows = self._gguf.picked_rows(self._name, token_ids.tolist())
        dequantize(rows, self._qtype, out)
        if self._scale != 1:
            out *= self._scale
        return out

"""The tokens of a vocabulary as compiled code looks them up."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from worker.kernels.token_table import fill


class TokenTable:
    """A hash table from text to token.

    Attributes:
        slots, texts, powers: see ``worker.kernels.token_table.find``.
    """

    def __init__(self, ids: Mapping[str, int], *, with_prefixes: bool) -> None:
        """Fill the table.

        Args:
            ids: text to token; no text is empty.
            with_prefixes: whether beginnings of tokens are found too.
        """
        self.texts = code_points("".join(ids))
        ends = np.cumsum(np.fromiter(map(len, ids), np.int64, len(ids)))
        entries = self.texts.size if with_prefixes else len(ids)
        self.slots = np.zeros((1 << (2 * entries + 1).bit_length(), 3), np.int32)  # [2 ** k, 3]
        self.powers = np.empty(max(map(len, ids), default=0) + 1, np.uint64)
        tokens = np.fromiter(ids.values(), np.int64, len(ids))
        fill(self.slots, self.texts, ends, tokens, self.powers, with_prefixes)


def code_points(text: str) -> NDArray[np.uint32]:
    """Give the code points of a text: uint32 [n]."""
    return np.frombuffer(bytearray(text.encode("utf-32-le", "surrogatepass")), "<u4")

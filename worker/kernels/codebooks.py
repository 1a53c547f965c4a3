"""The codebooks of the IQ1, IQ2 and IQ3 types, taken from the gguf package."""

from functools import cache

import numpy as np
from gguf import quants
from gguf.constants import GGMLQuantizationType
from numpy.typing import NDArray

_IQ1_TYPES = (GGMLQuantizationType.IQ1_S, GGMLQuantizationType.IQ1_M)


@cache
def codebook(qtype: GGMLQuantizationType) -> NDArray[np.int64]:
    """Give a type's codebook: int64 [entries], 8 (IQ3: 4) codes in the bytes of an entry.

    For IQ1 the codes are eighths, and the entries shifted up stand before those shifted down.
    """
    codes = _grid(qtype)
    if qtype in _IQ1_TYPES:
        codes = np.concatenate([8 * codes + 1, 8 * codes - 1])
    words = codes.astype(np.int8).view(np.uint64 if codes.shape[1] == 8 else np.uint32)
    return words.reshape(-1).astype(np.uint64).view(np.int64)


def _grid(qtype: GGMLQuantizationType) -> NDArray[np.float32]:
    """The values of the codebook's entries: [entries, 8 or 4]."""
    source = getattr(quants, qtype.name)
    source.init_grid()
    grid: NDArray[np.float32] = source.grid.reshape(source.grid_shape)
    return grid

"""Small models of random weights for the tests of packed files."""

from math import prod
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as QType

from tests.worker.gguf import gguf_bytes as g
from worker.gguf import GGUFFile
from worker.gguf.quant_types import row_bytes

# Name, type, rows and columns: full and partial row blocks, one and several quant blocks.
TENSORS = (
    ("a.weight", QType.Q4_1, 32, 64),
    ("b.weight", QType.Q8_0, 100, 96),
    ("c.weight", QType.Q6_K, 17, 512),
    ("d.weight", QType.F16, 3, 20),
)
NAMES = tuple(name for name, *_ in TENSORS)


def write_model(folder: Path, *, name: str = "model.gguf", seed: int = 0) -> Path:
    """A GGUF file with the tensors above and a vector that is never packed."""
    rng = np.random.default_rng(seed)
    table, data = [g.tensor("norm.weight", [8], QType.F32, 0)], bytes(32)
    for tensor, qtype, rows, columns in TENSORS:
        table.append(g.tensor(tensor, [columns, rows], qtype, len(data)))
        data += rng.bytes(prod((rows, row_bytes(columns, qtype))))
        data += bytes(-len(data) % 32)
    folder.mkdir(parents=True, exist_ok=True)
    return g.write(folder, g.gguf(tensors=table, data=data), name)


def open_model(folder: Path, *, name: str = "model.gguf", seed: int = 0) -> GGUFFile:
    """The same, opened."""
    return GGUFFile.open(write_model(folder, name=name, seed=seed))

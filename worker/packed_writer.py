"""Packing a model's tensors with all threads, piece by piece, into a file or into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .gguf import ModelFile
from .kernels.layouts import ROWS, row_blocks
from .packed_index import PackedEntry, PackedIndex
from .thread_team import ThreadTeam

Write = Callable[[int, NDArray[np.uint8]], None]
"""Takes an offset behind the header and the bytes that belong there; from any thread."""

_PIECE_VALUES = 1 << 19  # of one work item: its codes stay in a core's cache


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows first to last of a tensor; first is a multiple of 16."""

    entry: PackedEntry
    first: int
    last: int

    @property
    def offset(self) -> int:
        """Where the packed rows belong."""
        return self.entry.offset + self.first // ROWS * self.entry.row_block_bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the packed rows."""
        return row_blocks(self.last - self.first) * self.entry.row_block_bytes


def pack_tensors(gguf: ModelFile, index: PackedIndex, team: ThreadTeam, write: Write) -> None:
    """Pack all tensors of the index.

    Only the piece that a thread works on is held in memory; the model file's pages are given
    back tensor by tensor.

    Raises:
        GGUFError: the model file was changed since it was opened.
        OSError: `write` failed.
    """
    from .kernels.pack import pack_rows  # imports Numba, which reading a packed file does not need

    pieces = [piece for entry in index.entries for piece in _pieces(entry)]

    def pack_piece(item: int) -> None:
        piece = pieces[item]
        raw = gguf.rows(piece.entry.name, piece.first, piece.last)
        out = np.empty(piece.n_bytes, np.uint8)
        pack_rows(raw, piece.entry.layout, piece.entry.columns, out)
        write(piece.offset, out)
        if piece.last == piece.entry.rows:
            gguf.release(piece.entry.name)

    team.run(pack_piece, len(pieces))
    gguf.check_unchanged()
    for entry in index.entries:
        gguf.release(entry.name)  # another thread may have read on after the first release


def _pieces(entry: PackedEntry) -> Iterator[_Piece]:
    rows = max(1, _PIECE_VALUES // (ROWS * entry.columns)) * ROWS
    for first in range(0, entry.rows, rows):
        yield _Piece(entry, first, min(first + rows, entry.rows))

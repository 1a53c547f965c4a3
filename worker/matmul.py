"""Which matrix product serves the float32 mode on this machine."""

import logging
from collections.abc import Iterable
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .blas import TILES, BlasMatmul, Product, prove_tile
from .blas_threads import hold_blas_to_one_thread
from .kernels.matmul import matmul
from .thread_team import ThreadTeam

MatmulKind = Literal["blas", "compiled"]

_log = logging.getLogger(__name__)
_COLUMNS_AN_ITEM = 32


class Matmul(Protocol):
    """x @ weight.T, each row of the result independent of the others, bit for bit.

    Attributes:
        numerics: identity of the results; equal identities give equal bits.
    """

    numerics: str

    def multiply(
        self,
        weight: NDArray[np.float32],
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        first_column: int = 0,
    ) -> None:
        """Compute x @ weight.T into columns of `out`.

        Args:
            weight: [outputs, inputs] float32, C-contiguous.
            x: [tokens, inputs] float32, C-contiguous.
            out: [tokens, columns] float32, C-contiguous.
            first_column: where the `outputs` columns of the product start in `out`.
        """


class CompiledMatmul:
    """The compiled kernel: a fixed order of summation, the same on every machine."""

    numerics = "compiled float32"

    def __init__(self, team: ThreadTeam) -> None:
        self._team = team

    def multiply(
        self,
        weight: NDArray[np.float32],
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        first_column: int = 0,
    ) -> None:
        """Compute x @ weight.T, see `Matmul`."""
        outputs = len(weight)
        # Some eight items a thread even out the load; a multiple of 32 columns keeps lines whole.
        share = -(-outputs // (8 * self._team.threads))
        columns = -(-share // _COLUMNS_AN_ITEM) * _COLUMNS_AN_ITEM

        def multiply_columns(item: int) -> None:
            first = item * columns
            matmul(weight, x, out, first, min(first + columns, outputs), first_column)

        self._team.run(multiply_columns, -(-outputs // columns))


def choose_matmul(
    kind: MatmulKind,
    shapes: Iterable[tuple[int, int]],
    team: ThreadTeam,
    product: Product = np.matmul,
) -> Matmul:
    """The product asked for; the compiled one, with a warning, if BLAS fails its proof.

    Args:
        kind: "blas" or "compiled".
        shapes: (outputs, inputs) of every weight that will be multiplied.
        team: threads to share the work.
        product: the BLAS product, replaced in tests.
    """
    if kind == "compiled":
        return CompiledMatmul(team)
    hold_blas_to_one_thread()
    tile = prove_tile(shapes, product)
    if tile is None:
        _log.warning(
            "BLAS (%s) gives a row other bits beside other rows, in tiles of %s: "
            "using the compiled float32 kernel instead",
            BlasMatmul(team, TILES[0]).numerics,
            ", ".join(map(str, TILES)),
        )
        return CompiledMatmul(team)
    return BlasMatmul(team, tile, product)

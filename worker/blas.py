"""Matrix products through BLAS whose rows do not depend on each other.

BLAS picks its code path by the shape of a product, so a row's bits may depend on how many rows
stand beside it and where. `BlasMatmul` always multiplies tiles of the same shape: W @ X.T with
`tile` rows of X, zero rows where there are fewer, on one BLAS thread, over slices of W that the
shape of W alone fixes. `prove_tile` checks on this machine that a row of such a tile has
the same bits at every position, whatever its neighbours.
"""

import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from numpy.typing import NDArray

from .kernels.transpose import scatter_tile
from .thread_team import ThreadTeam

Product = Callable[..., Any]  # product(W [m, k], tiles [n, k, t], out=[n, m, t])

TILES = (16, 8, 4)  # rows of a tile, tried in this order

# Values of W in one slice: 512 KiB stay in the second-level cache while all tiles pass over them.
_SLICE_VALUES = 1 << 17
_SLICE_ROWS = 8  # slices are multiples of this, to suit BLAS's own blocking
_SLICES = 4  # their number is a multiple of this, to suit any team of 1, 2 or 4 threads
_TILES_A_CALL = 8


def slices(outputs: int, inputs: int) -> tuple[tuple[int, int], ...]:
    """Cut the rows of a weight [outputs, inputs] into (first, last) ranges, by its shape alone."""
    count = max(1, _SLICES * round(outputs * inputs / (_SLICES * _SLICE_VALUES)))
    rows = -(-outputs // count)
    rows = -(-rows // _SLICE_ROWS) * _SLICE_ROWS
    return tuple((first, min(first + rows, outputs)) for first in range(0, outputs, rows))


class BlasMatmul:
    """x @ weight.T in proven tiles, its slices shared by the thread team.

    Attributes:
        tile: rows of x in one BLAS call.
        numerics: identity of the results: library, version, core type and tile.
    """

    tile: int
    numerics: str

    def __init__(self, team: ThreadTeam, tile: int, product: Product = np.matmul) -> None:
        self.tile = tile
        self.numerics = f"blas {blas_identity()}, tile {tile}"
        self._team = team
        self._product = product
        self._slices = cache(slices)
        self._padded = np.zeros(0, np.float32)
        self._local = threading.local()

    def multiply(
        self,
        weight: NDArray[np.float32],
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        first_column: int = 0,
    ) -> None:
        """Compute x @ weight.T into columns of `out`, see `worker.matmul.Matmul`."""
        outputs, inputs = weight.shape
        ranges = self._slices(outputs, inputs)
        tiles = self._tiles(x)

        def multiply_slice(item: int) -> None:
            first, last = ranges[item]
            self._multiply_slice(weight[first:last], tiles, out, first_column + first)

        self._team.run(multiply_slice, len(ranges))

    def _tiles(self, x: NDArray[np.float32]) -> list[tuple[int, NDArray[np.float32]]]:
        """Views of x as (first row, [tiles, inputs, tile]); the last rows padded with zeros."""
        tokens, inputs = x.shape
        whole = tokens // self.tile * self.tile
        tiles = []
        for first in range(0, whole, self.tile * _TILES_A_CALL):
            last = min(whole, first + self.tile * _TILES_A_CALL)
            tiles.append((first, x[first:last].reshape(-1, self.tile, inputs).transpose(0, 2, 1)))
        if whole < tokens:
            padded = self._padded_tile(inputs)
            padded[: tokens - whole] = x[whole:]
            padded[tokens - whole :] = 0
            tiles.append((whole, padded[None].transpose(0, 2, 1)))
        return tiles

    def _padded_tile(self, inputs: int) -> NDArray[np.float32]:
        if self._padded.size < self.tile * inputs:
            self._padded = np.empty(self.tile * inputs, np.float32)
        return self._padded[: self.tile * inputs].reshape(self.tile, inputs)

    def _multiply_slice(
        self,
        weight: NDArray[np.float32],
        tiles: list[tuple[int, NDArray[np.float32]]],
        out: NDArray[np.float32],
        first_column: int,
    ) -> None:
        for first_row, group in tiles:
            products = self._scratch(len(group), len(weight))
            with np.errstate(over="ignore", invalid="ignore"):  # holds for this thread alone
                self._product(weight, group, out=products)
            for index, tile in enumerate(products):
                scatter_tile(tile, out, first_row + index * self.tile, first_column)

    def _scratch(self, tiles: int, rows: int) -> NDArray[np.float32]:
        """This thread's buffer for BLAS results: [tiles, rows, tile]."""
        size = tiles * rows * self.tile
        buffer: NDArray[np.float32] | None = getattr(self._local, "buffer", None)
        if buffer is None or buffer.size < size:
            buffer = self._local.buffer = np.empty(size, np.float32)
        return buffer[:size].reshape(tiles, rows, self.tile)


def prove_tile(
    shapes: Iterable[tuple[int, int]],
    product: Product = np.matmul,
    tiles: Iterable[int] = TILES,
) -> int | None:
    """Largest tile in which every row of every shape is independent of position and neighbours.

    Args:
        shapes: (outputs, inputs) of all weights.
        product: the matrix product to examine.
        tiles: the tiles to try, best first.

    Returns:
        The tile; None if none passes.
    """
    parts = sorted({(last - first, k) for n, k in set(shapes) for first, last in slices(n, k)})
    for tile in tiles:
        if all(_rows_independent(rows, inputs, tile, product) for rows, inputs in parts):
            return tile
    return None


@cache
def _rows_independent(rows: int, inputs: int, tile: int, product: Product) -> bool:
    """One row at every position of a tile, among zeros and among random rows: equal bits?"""
    random = np.random.default_rng(rows * 1_000_003 + inputs)
    weight = random.standard_normal((rows, inputs), np.float32)
    row = random.standard_normal(inputs, np.float32)
    neighbours = random.standard_normal((tile, inputs), np.float32)
    out = np.empty((1, rows, tile), np.float32)
    expected: bytes | None = None
    for others in (np.zeros_like(neighbours), neighbours):
        for position in range(tile):
            x = others.copy()
            x[position] = row
            product(weight, x[None].transpose(0, 2, 1), out=out)
            found = out[0, :, position].tobytes()
            expected = expected or found
            if found != expected:
                return False
    return True


@cache
def blas_identity() -> str:
    """Name, version and core type of the BLAS library behind NumPy."""
    from threadpoolctl import threadpool_info

    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    # Another package may have loaded its own copy: NumPy's lies beside NumPy.
    libraries.sort(key=lambda library: "numpy" not in str(library.get("filepath", "")))
    if libraries:
        library = libraries[0]
        core = library.get("architecture") or llvmlite.binding.get_host_cpu_name()
        return f"{library['internal_api']} {library['version']} {core}"
    blas: Any = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {_system_version(blas)} {_cpu_brand()}"


def _system_version(blas: dict[str, Any]) -> str:
    """Accelerate comes with macOS and has no version of its own."""
    return f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else str(blas["version"])


def _cpu_brand() -> str:
    if sys.platform != "darwin":
        return str(llvmlite.binding.get_host_cpu_name())
    asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

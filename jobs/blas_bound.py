"""What BLAS alone needs for the matrix products of one decode step."""

from math import ceil
from time import perf_counter
from typing import Self

import numpy as np

from worker.blas import prove_tile, slices
from worker.dequant_cache import DequantCache
from worker.thread_team import ThreadTeam


class BlasStep:
    """All products of a step over some rows, by ``numpy.matmul`` and nothing else.

    The same weights, slices of them, tiles and threads as in the engine, but no copying of
    inputs and results, no attention, norms or Python around it: what is left is the bound that
    the engine's decode is measured against.

    Args:
        cache: holds all weights of the model.
        rows: sequences that decode.
        tile: rows of one product.
        threads: as the engine has.
    """

    def __init__(self, cache: DequantCache, rows: int, tile: int, threads: int) -> None:
        self._cache = cache
        self._team = ThreadTeam(threads)
        tiles, random = ceil(rows / tile), np.random.default_rng(0)
        shapes = weight_shapes(cache)
        self._inputs = {k: random.standard_normal((tiles, tile, k), np.float32) for _, k in shapes}
        self._outputs = {n: np.empty((tiles, n, tile), np.float32) for n, _ in shapes}

    @classmethod
    def for_model(cls, cache: DequantCache, rows: int, threads: int) -> Self | None:
        """The step in tiles that pass the engine's proof; None when none does."""
        tile = prove_tile(weight_shapes(cache))
        return None if tile is None else cls(cache, rows, tile, threads)

    def seconds(self) -> float:
        """Do all products once; how long it took."""
        started = perf_counter()
        self._cache.begin_step()
        for number, unit in enumerate(self._cache.units):
            for index in range(len(unit.matrices)):
                self._multiply(self._cache.matrix(number, index))
        return perf_counter() - started

    def close(self) -> None:
        """End the threads."""
        self._team.close()

    def _multiply(self, weight: np.ndarray) -> None:
        ranges = slices(*weight.shape)
        x = self._inputs[weight.shape[1]].transpose(0, 2, 1)  # [tiles, k, tile]
        out = self._outputs[weight.shape[0]]

        def multiply_slice(item: int) -> None:
            first, last = ranges[item]
            np.matmul(weight[first:last], x, out=out[:, first:last])

        self._team.run(multiply_slice, len(ranges))


def weight_shapes(cache: DequantCache) -> set[tuple[int, int]]:
    """(outputs, inputs) of every matrix that a step multiplies with."""
    return {matrix.shape for unit in cache.units for matrix in unit.matrices}

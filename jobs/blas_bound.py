"""What BLAS alone needs for the matrix products of one decode step."""

from math import ceil
from statistics import median
from time import perf_counter

import numpy as np

from worker.blas import slices
from worker.dequant_cache import DequantCache
from worker.thread_team import ThreadTeam

_REPEATS = 5


def blas_step_seconds(cache: DequantCache, rows: int, tile: int, threads: int) -> float:
    """Seconds for all products of a step over ``rows`` rows, by ``numpy.matmul`` and nothing else.

    The same weights, slices of them, tiles and threads as in the engine, but no copying of
    inputs and results, no attention, norms or Python around it: what is left is the bound that
    the engine's decode is measured against. The median of a few steps.
    """
    team = ThreadTeam(threads)
    shapes = {matrix.shape for unit in cache.units for matrix in unit.matrices}
    num_tiles = ceil(rows / tile)
    random = np.random.default_rng(0)
    inputs = {k: random.standard_normal((num_tiles, tile, k), np.float32) for _, k in shapes}
    outputs = {n: np.empty((num_tiles, n, tile), np.float32) for n, _ in shapes}
    times = []
    for _ in range(_REPEATS + 1):
        started = perf_counter()
        _one_step(cache, inputs, outputs, team)
        times.append(perf_counter() - started)
    team.close()
    return median(times[1:])  # the first one fills caches


def _one_step(
    cache: DequantCache,
    inputs: dict[int, np.ndarray],
    outputs: dict[int, np.ndarray],
    team: ThreadTeam,
) -> None:
    cache.begin_step()
    for number, unit in enumerate(cache.units):
        for index in range(len(unit.matrices)):
            weight = cache.matrix(number, index)
            ranges = slices(*weight.shape)
            x = inputs[weight.shape[1]].transpose(0, 2, 1)  # [tiles, k, tile]
            out = outputs[weight.shape[0]]

            def multiply(item: int) -> None:
                first, last = ranges[item]  # noqa: B023 - run before the loop goes on
                np.matmul(weight[first:last], x, out=out[:, first:last])  # noqa: B023

            team.run(multiply, len(ranges))

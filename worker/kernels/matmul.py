"""Float32 matrix product with a fixed order of summation: the kernel beside BLAS.

Each output element is a sum of eight interleaved partial sums (one a lane), folded by one tree. The
order does not depend on how many rows there are, where a row stands or which thread computes it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .flat import flat
from .jit import kernel
from .vector import (
    fma8,
    load8,
    load_part,
    splat8,
    store_part,
    sums_of_8,
    upper_half,
)

_TOKENS_AT_ONCE = 64  # rows of x that stay in the second-level cache while the weight passes


def matmul(
    weight: NDArray[np.float32],
    x: NDArray[np.float32],
    out: NDArray[np.float32],
    first: int,
    last: int,
    first_column: int = 0,
) -> None:
    """Compute out[t, first_column + n] = x[t] . weight[n] for the rows n from first to last.

    Args:
        weight: [outputs, inputs] float32, C-contiguous.
        x: [tokens, inputs] float32, C-contiguous.
        out: [tokens, columns] float32, C-contiguous; written in the columns named.
        first: first row of the weight.
        last: row of the weight to stop before.
        first_column: column of `out` that row 0 of the weight stands for.
    """
    outputs, inputs = weight.shape
    tokens, columns = out.shape
    assert x.shape == (tokens, inputs), (x.shape, weight.shape, out.shape)
    assert 0 <= first <= last <= outputs, (first, last, outputs)
    assert 0 <= first_column <= columns - last, (first_column, last, columns)
    shape = (first, last, first_column, columns, inputs, tokens)
    _matmul(flat(weight), flat(x), flat(out), *shape)


@kernel
def _matmul(
    weight: NDArray[np.float32],
    x: NDArray[np.float32],
    out: NDArray[np.float32],
    first: int,
    last: int,
    first_column: int,
    columns: int,
    inputs: int,
    tokens: int,
) -> None:
    """Shapes: weight [outputs * inputs], x [tokens * inputs], out [tokens * columns], all flat.

    Four rows of the weight meet two tokens at once; where fewer are left, the last one is computed
    again and not stored, so that every element goes through the same code.
    """
    for start in range(0, tokens, _TOKENS_AT_ONCE):
        end = min(start + _TOKENS_AT_ONCE, tokens)
        for n in range(first, last, 4):
            count = min(4, last - n)
            n1 = min(n + 1, last - 1) * inputs
            n2 = min(n + 2, last - 1) * inputs
            n3 = min(n + 3, last - 1) * inputs
            for t in range(start, end, 2):
                t1 = min(t + 1, tokens - 1)
                sums = _dots(weight, n * inputs, n1, n2, n3, x, t * inputs, t1 * inputs, inputs)
                column = first_column + n
                store_part(out, t * columns + column, count, sums)
                store_part(out, t1 * columns + column, count, upper_half(sums))


@kernel
def _dots(
    weight: NDArray[np.float32],
    n0: int,
    n1: int,
    n2: int,
    n3: int,
    x: NDArray[np.float32],
    t0: int,
    t1: int,
    inputs: int,
) -> Any:
    """Dot products of the weight rows at n0 to n3 with the rows of x at t0 (lanes 0-3) and t1."""
    whole = inputs // 8 * 8
    rest = inputs - whole
    zero = splat8(np.float32(0.0))
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = zero
    for k in range(0, whole, 8):
        x0, x1 = load8(x, t0 + k), load8(x, t1 + k)
        w0, w1 = load8(weight, n0 + k), load8(weight, n1 + k)
        w2, w3 = load8(weight, n2 + k), load8(weight, n3 + k)
        a0, a1, a2, a3 = fma8(w0, x0, a0), fma8(w1, x0, a1), fma8(w2, x0, a2), fma8(w3, x0, a3)
        b0, b1, b2, b3 = fma8(w0, x1, b0), fma8(w1, x1, b1), fma8(w2, x1, b2), fma8(w3, x1, b3)
    if rest > 0:
        k = whole
        x0, x1 = load_part(x, t0 + k, rest), load_part(x, t1 + k, rest)
        w0, w1 = load_part(weight, n0 + k, rest), load_part(weight, n1 + k, rest)
        w2, w3 = load_part(weight, n2 + k, rest), load_part(weight, n3 + k, rest)
        a0, a1, a2, a3 = fma8(w0, x0, a0), fma8(w1, x0, a1), fma8(w2, x0, a2), fma8(w3, x0, a3)
        b0, b1, b2, b3 = fma8(w0, x1, b0), fma8(w1, x1, b1), fma8(w2, x1, b2), fma8(w3, x1, b3)
    return sums_of_8(a0, a1, a2, a3, b0, b1, b2, b3)

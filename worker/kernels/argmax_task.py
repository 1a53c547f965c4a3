"""The most likely token of each logit row, found while the output head has its logits at hand.

A head item computes the logits of a run of tokens, tile after tile, and folds each tile into the
*best* of that item and row: 16 bytes, `[f32 value][i32 token][i32 bad][4 unused]`. The bests of all
items are reduced in the end. So a row that takes its most likely token needs no logits in memory.
The values must be the final ones: a soft cap makes equals of logits that differ.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import kernel
from .native import float32s, int32s, task, word

TILE = 16
BEST_BYTES = 16
NO_TOKEN = -1
_TOKEN, _BAD = 1, 2  # 32-bit words of a best

_FLOAT = ir.FloatType()
_INT1 = ir.IntType(1)
_INT32 = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, TILE)
_MASK = ir.VectorType(_INT1, TILE)
_ALL_FIRST = ir.Constant(ir.VectorType(_INT32, TILE), [0] * TILE)


@intrinsic
def _any_above(typingctx: Any, values: Any, best: Any) -> Any:
    """Whether one of TILE float32 values at an address is above `best`, NaN or minus infinity."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, best_value = arguments
        tile = builder.load(builder.inttoptr(address, _VECTOR.as_pointer()), align=4)
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        single = builder.insert_element(undefined, best_value, ir.Constant(_INT32, 0))
        bests = builder.shuffle_vector(single, undefined, _ALL_FIRST)
        lowest = ir.Constant(_VECTOR, [float("-inf")] * TILE)
        # Unordered comparisons are true for NaN.
        above = builder.fcmp_unordered(">", tile, bests)
        lanes = builder.or_(above, builder.fcmp_unordered("<=", tile, lowest))
        name = f"llvm.vector.reduce.or.v{TILE}i1"
        any_lane = ir.FunctionType(_INT1, [_MASK])
        return builder.call(cgutils.get_or_insert_function(builder.module, any_lane, name), [lanes])

    return types.boolean(types.int64, types.float32), codegen


@kernel
def clear_best(best: int) -> None:
    """Make the best at an address that of no logits."""
    float32s(best, 1)[0] = -np.inf
    int32s(best, 3)[_TOKEN] = NO_TOKEN
    int32s(best, 3)[_BAD] = 0


@kernel
def tile_best(values: int, first_token: int, count: int, best: int) -> None:
    """Fold a tile of logits into a best: the first of equal values stays.

    Args:
        values: address of TILE float32 logits of one row.
        first_token: token of the first; tiles must come in the order of their tokens.
        count: how many of them are logits; the others may hold anything.
        best: address of the best.
    """
    # Few tiles of a row hold a new best; the others cost one comparison.
    if count < TILE or _any_above(values, float32s(best, 1)[0]):
        _fold(values, first_token, count, best)


@kernel
def _fold(values: int, first_token: int, count: int, best: int) -> None:
    """Fold `count` logits into a best, one by one."""
    logits, value, words = float32s(values, count), float32s(best, 1), int32s(best, 3)
    for i in range(count):
        if not np.isfinite(logits[i]):
            words[_BAD] = 1
        elif logits[i] > value[0]:
            value[0] = logits[i]
            words[_TOKEN] = first_token + i


@kernel
def reduce_bests(bests: int, parts: int, stride: int) -> tuple[int, np.float32]:
    """Token and value of the first largest of several bests; token -1 if one of them is bad.

    Args:
        bests: address of the first; they are in the order of their tokens.
        parts: how many.
        stride: bytes from one to the next.
    """
    token, value, bad = NO_TOKEN, np.float32(-np.inf), 0
    for part in range(parts):
        best = bests + part * stride
        bad |= int32s(best, 3)[_BAD]
        if float32s(best, 1)[0] > value:
            token, value = int32s(best, 3)[_TOKEN], float32s(best, 1)[0]
    return (token if bad == 0 else NO_TOKEN), value


# Arguments of `argmax_task`, in this order.
BESTS, PARTS, PART_STRIDE, TOKENS, VALUES = range(5)


@task
def argmax_task(header: int, arguments: int, item: int, thread: int) -> None:
    """Reduce the bests of one logit row, which is the item.

    Arguments: address of the bests, [parts][rows], parts in the order of their tokens; number of
    parts; bytes from a part to the next; address of the rows' tokens, int32, -1 where a logit was
    NaN or infinite; address of the rows' best values, float32.
    """
    bests = word(arguments, BESTS) + item * BEST_BYTES
    best = reduce_bests(bests, word(arguments, PARTS), word(arguments, PART_STRIDE))
    int32s(word(arguments, TOKENS), item + 1)[item] = best[0]
    float32s(word(arguments, VALUES), item + 1)[item] = best[1]

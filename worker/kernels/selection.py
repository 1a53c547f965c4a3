"""The largest logits of a row, in order, without sorting or copying the row.

A row is cut into groups, whose largest logits are found in one pass. The k-th largest of them is a
value that k tokens reach: only groups that reach it are looked at again, and the tokens found
there, the *candidates*, are few. A candidate is one int64: the rank of its logit (the lower, the
larger the logit) above the token, so that ascending order is the sampler's: largest logit first,
lowest token first among equals.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from .jit import kernel
from .scratch import GROUP, Scratch
from .vector import greatest8, load8, max8

_TOKEN_BITS = 31
_RANK_BITS = 32
_TOKEN_MASK = (1 << _TOKEN_BITS) - 1
_HIGHEST = 0x7FFFFFFF  # bits of a float32 without its sign
_FEW = 80  # candidates that are sorted by insertion
_STEPS = 256  # into which a span of ranks is cut
_STEP_BITS = 8


@kernel
def candidate(logit: np.float32, token: int) -> np.int64:
    """A candidate; the two zeros are equal."""
    bits = np.int64(np.float32(logit).view(np.int32))
    ordered = bits if bits >= 0 else -(bits & _HIGHEST)
    return ((_HIGHEST - ordered) << _TOKEN_BITS) | token


@kernel
def token_of(chosen: int) -> int:
    """The token of a candidate."""
    return chosen & _TOKEN_MASK


@kernel
def logit_of(chosen: int) -> Any:
    """The logit of a candidate, a float32."""
    ordered = _HIGHEST - (chosen >> _TOKEN_BITS)
    bits = ordered if ordered >= 0 else ~_HIGHEST - ordered
    return np.int32(bits).view(np.float32)


@kernel
def find_maxima(row: NDArray[np.float32], maxima: NDArray[np.float32]) -> Any:
    """Write the largest logit of each group, and give the largest of all.

    Shapes: row [n], maxima [n / GROUP, rounded up]. No logit is NaN.
    """
    greatest = np.float32(-np.inf)
    whole = row.size // GROUP
    for group in range(whole):
        first = group * GROUP
        largest = load8(row, first)
        for i in range(first + 8, first + GROUP, 8):
            largest = max8(largest, load8(row, i))
        maxima[group] = greatest8(largest)
        greatest = max(greatest, maxima[group])
    if whole * GROUP < row.size:
        maxima[whole] = -np.inf
        for i in range(whole * GROUP, row.size):
            maxima[whole] = max(maxima[whole], row[i])
        greatest = max(greatest, maxima[whole])
    return greatest


@kernel
def first_equal(row: NDArray[np.float32], maxima: NDArray[np.float32], value: np.float32) -> int:
    """The first token whose logit is `value`, the largest of all."""
    group = 0
    while maxima[group] != value:
        group += 1
    token = group * GROUP
    while row[token] != value:
        token += 1
    return token


@intrinsic
def _any_reaches(typingctx: Any, row: Any, offset: Any, threshold: Any) -> Any:
    """Whether one of eight elements of a float32 row from `offset` is at least `threshold`."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, offset_value, value = arguments
        floats = ir.VectorType(ir.FloatType(), 8)
        data = context.make_array(row)(context, builder, array).data
        pointer = builder.bitcast(builder.gep(data, [offset_value]), floats.as_pointer())
        undefined = ir.Constant(floats, ir.Undefined)
        single = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
        spread = builder.shuffle_vector(single, undefined, first)
        lanes = builder.fcmp_ordered(">=", builder.load(pointer, align=4), spread)
        any_lane = ir.FunctionType(ir.IntType(1), [lanes.type])
        name = "llvm.vector.reduce.or.v8i1"
        return builder.call(cgutils.get_or_insert_function(builder.module, any_lane, name), [lanes])

    return types.boolean(row, types.intp, types.float32), codegen


@kernel
def gather(row: NDArray[np.float32], threshold: np.float32, scratch: Scratch) -> int:
    """Write the candidates of all logits from `threshold` up, by token; give their number."""
    candidates, count = scratch.candidates, 0
    for first in range(0, row.size, GROUP):
        if scratch.maxima[first // GROUP] >= threshold:
            last = min(first + GROUP, row.size)
            for eight in range(first, last, 8):
                if eight + 8 > last or _any_reaches(row, eight, threshold):
                    for token in range(eight, min(eight + 8, last)):
                        # Written in any case, kept if it counts: no branch to guess.
                        candidates[count] = candidate(row[token], token)
                        count += row[token] >= threshold
    return count


@kernel
def largest(row: NDArray[np.float32], k: int, scratch: Scratch) -> int:
    """Put the k most likely candidates in order; give their number: k, or n if that is less.

    Args:
        row: float32 [n], no NaN.
        k: how many, at least 1.
        scratch: with the maxima of the row; its candidates receive the result.
    """
    threshold = np.float32(-np.inf)
    groups = -(-row.size // GROUP)
    if k < groups:
        for group in range(groups):
            scratch.candidates[group] = candidate(scratch.maxima[group], group)
        keep_first(groups, k, scratch)
        last = scratch.candidates[0]
        for i in range(1, k):
            last = max(last, scratch.candidates[i])
        threshold = logit_of(last)
    count = gather(row, threshold, scratch)
    if count > k:
        keep_first(count, k, scratch)
        count = k
    sort(count, scratch)
    return count


@kernel
def _rank_bounds(candidates: NDArray[np.int64], count: int) -> tuple[int, int]:
    """Lowest and highest rank of the first `count` candidates."""
    lowest, highest = candidates[0], candidates[0]
    for i in range(1, count):
        lowest, highest = min(lowest, candidates[i]), max(highest, candidates[i])
    return lowest >> _TOKEN_BITS, highest >> _TOKEN_BITS


@kernel
def keep_first(count: int, k: int, scratch: Scratch) -> None:
    """Leave the first k of `count` candidates, not in order, but those of equal rank by token.

    The span of ranks is cut into steps: what is below the step of the k-th candidate is kept,
    what is above is dropped, what shares it is cut again, until only equal ranks are left.

    Args:
        count: how many there are, by token.
        k: how many to keep, from 1 to `count`.
        scratch: its candidates; `spare` and `counters` are used.
    """
    candidates, spare, counters = scratch.candidates, scratch.spare, scratch.counters
    kept, span = 0, 1
    while span > 0:
        lowest, highest = _rank_bounds(candidates, count)
        base, span, shift = lowest << _TOKEN_BITS, highest - lowest, _TOKEN_BITS
        while span >> (shift - _TOKEN_BITS) >= _STEPS:
            shift += 1
        counters[:_STEPS] = 0
        for i in range(count):
            counters[(candidates[i] - base) >> shift] += 1
        border, below = 0, kept
        while below + counters[border] < k:
            below += counters[border]
            border += 1
        same = 0
        for i in range(count):
            step = (candidates[i] - base) >> shift
            if step < border:
                spare[kept] = candidates[i]
                kept += 1
            elif step == border:
                candidates[same] = candidates[i]
                same += 1
        count = same
    for i in range(kept, k):
        spare[i] = candidates[i - kept]
    for i in range(k):
        candidates[i] = spare[i]


@kernel
def sort(count: int, scratch: Scratch) -> None:
    """Put the first `count` candidates in order; those of equal rank must stand by token.

    Few are sorted by insertion, more by the digits of their ranks, the lowest first.
    """
    if count <= _FEW:
        _insert(scratch.candidates, count)
        return
    source, target = scratch.candidates, scratch.spare
    lowest, highest = _rank_bounds(source, count)
    swaps = 0
    for shift in range(0, _RANK_BITS, _STEP_BITS):
        if (highest - lowest) >> shift > 0:
            _sort_by_digit(source, target, count, lowest, shift, scratch.counters)
            source, target = target, source
            swaps += 1
    if swaps % 2 == 1:
        for i in range(count):
            target[i] = source[i]


@kernel
def _sort_by_digit(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    count: int,
    lowest: int,
    shift: int,
    counters: NDArray[np.int64],
) -> None:
    """Write candidates in the order of a digit of (rank - lowest); equals keep their order."""
    counters[:_STEPS] = 0
    for i in range(count):
        counters[_digit(source[i], lowest, shift)] += 1
    place = 0
    for digit in range(_STEPS):
        place += counters[digit]
        counters[digit] = place - counters[digit]
    for i in range(count):
        digit = _digit(source[i], lowest, shift)
        target[counters[digit]] = source[i]
        counters[digit] += 1


@kernel
def _digit(chosen: int, lowest: int, shift: int) -> int:
    return (((chosen >> _TOKEN_BITS) - lowest) >> shift) & (_STEPS - 1)


@kernel
def _insert(candidates: NDArray[np.int64], count: int) -> None:
    """Insertion sort of a few candidates."""
    for i in range(1, count):
        moving, j = candidates[i], i
        while j > 0 and candidates[j - 1] > moving:
            candidates[j] = candidates[j - 1]
            j -= 1
        candidates[j] = moving

"""float16 to float32 and back: NumPy's bits, with the CPU's instructions and without."""

import numpy as np
import pytest
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from worker.kernels.half import StoredFloats, has_half_instructions
from worker.kernels.isa_ir import FLOAT, INT64, at, load, pointer, store, times, vector
from worker.kernels.jit import kernel
from worker.kernels.native import address_of

WAYS = [pytest.param(1, id="instructions"), pytest.param(0, id="bits")]


def _convert(typingctx, source, target, count, has_instructions, narrows):
    """Convert `count` numbers, eight at a time."""
    stored = StoredFloats(True, bool(has_instructions.literal_value))
    source_bytes, target_bytes = (4, 2) if narrows.literal_value else (2, 4)

    def codegen(context, builder, signature, arguments):
        turns = builder.udiv(arguments[2], INT64(8))
        with cgutils.for_range(builder, turns, intp=INT64) as turn:
            start, goal = (
                at(builder, pointer(builder, base), times(builder, turn.index, 8 * size))
                for base, size in zip(arguments[:2], (source_bytes, target_bytes), strict=True)
            )
            if narrows.literal_value:
                result = stored.converted(builder, load(builder, start, vector(FLOAT, 8), 4))
            else:
                result = stored.load(builder, start, 8)
            store(builder, result, goal, 2)
        return context.get_dummy_value()

    return types.none(*[types.int64] * 3, has_instructions, narrows), codegen


convert = intrinsic(prefer_literal=True)(_convert)


@kernel
def _widen_by_instructions(source, target, count):
    convert(source, target, count, 1, 0)


@kernel
def _widen_by_bits(source, target, count):
    convert(source, target, count, 0, 0)


@kernel
def _narrow_by_instructions(source, target, count):
    convert(source, target, count, 1, 1)


@kernel
def _narrow_by_bits(source, target, count):
    convert(source, target, count, 0, 1)


def _converted(values, target, by_bits, by_instructions, has_instructions):
    if has_instructions and not has_half_instructions():
        pytest.skip("this CPU does not convert float16")
    padded = np.zeros(-(-len(values) // 8) * 8, values.dtype)
    padded[: len(values)] = values
    out = np.empty(len(padded), target)
    run = by_instructions if has_instructions else by_bits
    run(address_of(padded), address_of(out), len(padded))
    return out[: len(values)]


@pytest.mark.parametrize("has_instructions", WAYS)
def test_every_half_becomes_the_float_that_numpy_says(has_instructions):
    """All 65,536, subnormals and infinities included; signalling NaNs become quiet ones."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    found = _converted(halves, np.float32, _widen_by_bits, _widen_by_instructions, has_instructions)
    expected = halves.astype(np.float32)
    expected.view(np.uint32)[np.isnan(halves)] |= 1 << 22
    assert np.array_equal(expected.view(np.uint32), found.view(np.uint32))


def _edges():
    """Every half, the middle to the next one, and the floats beside these; and odd ones."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middles = (halves + np.append(halves[1:], 65536.0)) / 2
    exact = np.concatenate([halves, middles]).astype(np.float32)
    near = [np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf)]
    odd = np.array([1e-45, 1e-38, 1e9, 3e38, np.inf, np.nan], np.float32)
    positive = np.concatenate([exact, *near, odd])
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("has_instructions", WAYS)
def test_floats_become_the_nearest_half(has_instructions):
    """Ties go to even, what is too large becomes infinite: as NumPy has it."""
    floats = _edges()
    found = _converted(
        floats, np.float16, _narrow_by_bits, _narrow_by_instructions, has_instructions
    )
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    is_nan = np.isnan(floats)
    assert np.array_equal(expected[~is_nan].view(np.uint16), found[~is_nan].view(np.uint16))
    assert np.isnan(found[is_nan]).all()

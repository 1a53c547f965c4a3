"""The two products of attention, Q K^T and P V, in registers, as native kernels.

A tile works on a *span*, 64 positions of a sequence, and on some *rows*, a row being one query head
of one query. The span comes in groups of as many slots as a vector has lanes; the address of each
group stands in a list, so that a group can lie in any block of the pool. Keys lie dimension by
dimension, the slots of a block side by side; values lie slot by slot. So lanes are slots in one
product and dimensions in the other, and no sum runs across lanes: every output is one chain of
fused multiply-adds, over the dimensions or over the slots, in order. The width of the vectors, the
rows of a tile and the groups it takes at a time are the machine's affair and change no bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .feature_probe import best_instruction_set
from .half import StoredFloats, stored_floats
from .isa_ir import (
    FLOAT,
    INT64,
    Value,
    at,
    constant,
    fma,
    load,
    load_splat,
    loop,
    pointer,
    store,
    times,
    vector,
)
from .native import Native
from .task_arguments import KVDtype

SPAN = 64
"""Positions between two updates of the softmax: position p belongs to span p // 64, always."""

MOST_ROWS = 8
"""Most rows of a tile."""


@dataclass(frozen=True, slots=True)
class Registers:
    """The vector registers that a tile can use.

    Attributes:
        lanes: float32 lanes of a vector.
        sums: vectors of sums that a tile may keep, so that no register spills to the stack.
        sums_of_halves: the same where float16 is converted on the way.
    """

    lanes: int
    sums: int
    sums_of_halves: int

    def vectors(self, rows: int, is_half: bool) -> int:
        """Vectors of sums for each row of a tile: a power of two, at most 4."""
        most, room = 4, self.sums_of_halves if is_half else self.sums
        while most * rows > room and most > 1:
            most //= 2
        return most


# 32 registers of 16 lanes; 16 of 8; 32 of 4, two of which make a vector.
AVX512, AVX2, NEON = Registers(16, 24, 24), Registers(8, 12, 11), Registers(8, 12, 12)


def machine_registers() -> Registers:
    """Those of the CPU that kernels are compiled for."""
    rows = best_instruction_set().rows
    return AVX512 if rows == AVX512.lanes else (AVX2 if rows == AVX2.lanes else NEON)


def lanes() -> int:
    """Slots of a group of keys and values, see the module."""
    return machine_registers().lanes


def emit_scores(
    builder: ir.IRBuilder,
    registers: Registers,
    source: StoredFloats,
    rows: int,
    arguments: list[Value],
) -> None:
    """IR of a tile of Q K^T, see `score_tile`."""
    queries, *_middle, groups = arguments
    query = [_listed(builder, queries, row) for row in range(rows)]
    for first, count in _runs(builder, groups, registers.vectors(rows, source.is_half)):
        _emit_score_groups(builder, registers, source, query, first, count, arguments)


def _emit_score_groups(
    builder: ir.IRBuilder,
    registers: Registers,
    source: StoredFloats,
    query: list[Value],
    first: Value,
    count: int,
    arguments: list[Value],
) -> None:
    """Write the scores of `count` groups of keys from a first one on."""
    _queries, bases, step, dims, scores, _groups = arguments
    kind = vector(FLOAT, registers.lanes)
    listed = builder.add(bases, times(builder, first, 8))
    keys = [_listed(builder, listed, i) for i in range(count)]

    def add_dimension(d: Value, sums: list[Value]) -> list[Value]:
        down, along = builder.mul(d, step), times(builder, d, 4)

        def key(i: int) -> Value:
            return source.load(builder, at(builder, keys[i], down), kind.count)

        def number(row: int) -> Value:
            return load_splat(builder, at(builder, query[row], along), FLOAT, kind.count)

        return _products(builder, key, number, len(query), count, sums)

    sums = loop(builder, dims, [constant(kind, 0.0)] * (len(query) * count), add_dimension)
    target = at(builder, pointer(builder, scores), times(builder, first, 4 * kind.count))
    for i, result in enumerate(sums):
        row, group = divmod(i, count)
        store(builder, result, at(builder, target, 4 * (row * SPAN + group * kind.count)), 4)


def emit_values(
    builder: ir.IRBuilder,
    registers: Registers,
    source: StoredFloats,
    rows: int,
    arguments: list[Value],
) -> None:
    """IR of a tile of P V, see `value_tile`."""
    vectors = builder.udiv(arguments[-1], ir.Constant(INT64, registers.lanes))
    for first, count in _runs(builder, vectors, registers.vectors(rows, source.is_half)):
        _emit_value_columns(builder, registers, source, rows, count, first, arguments)


def _runs(builder: ir.IRBuilder, total: Value, most: int) -> Iterator[tuple[Value, int]]:
    """Loops over runs of `most`, a power of two, then over what is left by half as many each."""
    done: Value = ir.Constant(INT64, 0)
    while most > 0:
        turns = builder.udiv(builder.sub(total, done), ir.Constant(INT64, most))
        with cgutils.for_range(builder, turns, intp=INT64) as turn:
            yield builder.add(done, times(builder, turn.index, most)), most
        done = builder.add(done, times(builder, turns, most))
        most //= 2


def _emit_value_columns(
    builder: ir.IRBuilder,
    registers: Registers,
    source: StoredFloats,
    rows: int,
    per: int,
    at_vector: Value,
    arguments: list[Value],
) -> None:
    """Add all slots into `per` vectors of columns of each row."""
    weights, bases, step, low, high, sums, columns = arguments
    lanes = registers.lanes
    places = _sum_places(builder, lanes, rows, per, at_vector, sums, columns)
    first_group, groups = _groups_of(builder, lanes, low, high)
    sideways = times(builder, at_vector, source.bytes * lanes)

    def take_group(turn: Value, state: list[Value]) -> list[Value]:
        group = builder.add(first_group, turn)
        base = _listed(builder, builder.add(bases, times(builder, group, 8)), 0)
        begin = times(builder, group, lanes)
        start, stop = _slots_of(builder, lanes, begin, low, high)
        down = builder.mul(builder.sub(start, begin), step)
        value = at(builder, at(builder, base, sideways), down)
        weight = at(builder, pointer(builder, weights), times(builder, start, 4))

        def add_slot(slot: Value, state: list[Value]) -> list[Value]:
            here = at(builder, value, builder.mul(slot, step))
            along = at(builder, weight, times(builder, slot, 4))

            def numbers(i: int) -> Value:
                return source.load(builder, at(builder, here, i * source.bytes * lanes), lanes)

            def share(row: int) -> Value:
                return load_splat(builder, at(builder, along, 4 * SPAN * row), FLOAT, lanes)

            return _products(builder, numbers, share, rows, per, state)

        return loop(builder, builder.sub(stop, start), state, add_slot)

    state = [load(builder, place, vector(FLOAT, lanes), 4) for place in places]
    for place, result in zip(places, loop(builder, groups, state, take_group), strict=True):
        store(builder, result, place, 4)


def _sum_places(
    builder: ir.IRBuilder,
    lanes: int,
    rows: int,
    per: int,
    at_vector: Value,
    sums: Value,
    columns: Value,
) -> list[Value]:
    """Pointers to `per` vectors of each row of sums, from a vector on."""
    rows_at = [
        at(builder, pointer(builder, sums), times(builder, columns, 4 * row)) for row in range(rows)
    ]
    along = [
        times(builder, builder.add(at_vector, ir.Constant(INT64, i)), 4 * lanes) for i in range(per)
    ]
    return [at(builder, row, offset) for row in rows_at for offset in along]


def _groups_of(builder: ir.IRBuilder, lanes: int, low: Value, high: Value) -> tuple[Value, Value]:
    """The first group with a slot low <= slot < high, and how many groups have one."""
    width, one = ir.Constant(INT64, lanes), ir.Constant(INT64, 1)
    first = builder.udiv(low, width)
    last = builder.udiv(builder.sub(high, one), width)
    return first, builder.add(builder.sub(last, first), one)


def _slots_of(
    builder: ir.IRBuilder, lanes: int, begin: Value, low: Value, high: Value
) -> tuple[Value, Value]:
    """Of the group of slots that begins at `begin`, those low <= slot < high: first and end."""
    end = builder.add(begin, ir.Constant(INT64, lanes))
    start = builder.select(builder.icmp_signed(">", low, begin), low, begin)
    stop = builder.select(builder.icmp_signed("<", high, end), high, end)
    return start, stop


def _products(
    builder: ir.IRBuilder,
    vector_of: Callable[[int], Value],
    factor_of: Callable[[int], Value],
    rows: int,
    vectors: int,
    sums: list[Value],
) -> list[Value]:
    """Add each vector times each row's factor to a sum.

    Those of which there are fewer are kept in registers, the others come one by one.
    """
    result = list(sums)
    if vectors < rows:
        kept = [vector_of(i) for i in range(vectors)]
        for row in range(rows):
            factor = factor_of(row)
            for i in range(vectors):
                place = row * vectors + i
                result[place] = fma(builder, factor, kept[i], sums[place])
    else:
        kept = [factor_of(row) for row in range(rows)]
        for i in range(vectors):
            numbers = vector_of(i)
            for row in range(rows):
                place = row * vectors + i
                result[place] = fma(builder, kept[row], numbers, sums[place])
    return result


def _listed(builder: ir.IRBuilder, addresses: Value, index: int) -> Value:
    """Pointer that stands in a list of int64 addresses."""
    place = at(builder, pointer(builder, addresses), 8 * index)
    return pointer(builder, load(builder, place, INT64, 8))


@intrinsic(prefer_literal=True)
def _scores(
    typingctx: Any, queries: Any, bases: Any, step: Any, dims: Any, scores: Any, groups: Any,
    rows: Any, is_half: Any,
) -> Any:  # fmt: skip
    count, source = rows.literal_value, stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit_scores(builder, machine_registers(), source, count, list(arguments[:6]))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 6, rows, is_half), codegen


@intrinsic(prefer_literal=True)
def _values(
    typingctx: Any, weights: Any, bases: Any, step: Any, low: Any, high: Any, sums: Any,
    columns: Any, rows: Any, is_half: Any,
) -> Any:  # fmt: skip
    count, source = rows.literal_value, stored_floats(bool(is_half.literal_value))

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit_values(builder, machine_registers(), source, count, list(arguments[:7]))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 7, rows, is_half), codegen


@cache
def score_tile(dtype: KVDtype, rows: int) -> Native:
    """Kernel ``(queries, bases, step, dims, scores, groups)`` for `rows` rows, 1 to MOST_ROWS.

    queries: address of the addresses of the rows' queries, float32 [dims] each. bases: of the
    addresses of the span's groups of keys, SPAN / lanes of them, all readable. step: bytes from a
    dimension of a group to the next. scores: float32 [rows, SPAN], written for the
    first `groups` groups.
    """
    assert 1 <= rows <= MOST_ROWS, rows
    is_half = int(dtype == "float16")

    def scores(queries: int, bases: int, step: int, dims: int, scores: int, groups: int) -> None:
        _scores(queries, bases, step, dims, scores, groups, rows, is_half)

    return Native(scores, 6)


@cache
def value_tile(dtype: KVDtype, rows: int) -> Native:
    """Kernel ``(weights, bases, step, low, high, sums, columns)`` for `rows` rows.

    weights: float32 [rows, SPAN]. bases: addresses of the span's groups of values. step: bytes from
    a slot of a group to the next. Adds weight * value of the slots low <= slot < high, at
    least one, in order, to sums: float32 [rows, columns]; columns is a multiple of the lanes.
    """
    assert 1 <= rows <= MOST_ROWS, rows
    is_half = int(dtype == "float16")

    def values(
        weights: int, bases: int, step: int, low: int, high: int, sums: int, columns: int
    ) -> None:
        _values(weights, bases, step, low, high, sums, columns, rows, is_half)

    return Native(values, 7)

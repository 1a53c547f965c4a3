"""How fast a CPU multiplies bytes at best: the bound that `bench-kernels` holds the tiles against.

A peak is one instruction, or the pair of them that does the same work, on registers alone: no
memory, no scales, and so many independent chains of it that its latency is hidden.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .feature_probe import available_instruction_sets
from .isa_ir import INT8, INT16, INT32, Value, call, load, loop, pointer, store, vector
from .native import Native, task, word

CHAINS = 12
"""Latency times instructions a cycle is at most ten on today's cores."""

_Step = Callable[[ir.IRBuilder, Value, Value], Value]


@dataclass(frozen=True, slots=True)
class Peak:
    """An instruction, or a pair, that multiplies and adds bytes.

    Attributes:
        name: as in assembly.
        lanes: of `lane_bits` bits that it adds to.
        lane_bits: 16 or 32.
        step: writes ``sums + weights * bytes``; `bytes` as wide as the sums.
    """

    name: str
    lanes: int
    lane_bits: int
    step: _Step

    @property
    def sums(self) -> ir.VectorType:
        """The type of the sums."""
        return vector(INT16 if self.lane_bits == 16 else INT32, self.lanes)

    @property
    def n_bytes(self) -> int:
        """Bytes of the sums: each is multiplied once a step."""
        return self.lanes * self.lane_bits // 8

    @property
    def operations(self) -> int:
        """Multiplications and additions of a turn of all chains."""
        return 2 * CHAINS * self.n_bytes


def _pairs(builder: ir.IRBuilder, sums: Value, quad: Value) -> Value:
    """The sums stand for the weights, or the product would be the same in every turn."""
    weights = builder.bitcast(sums, vector(INT8, 32))
    products = call(builder, "llvm.x86.avx2.pmadd.ub.sw", sums.type, [weights, quad])
    return builder.add(sums, products)


def _dot(name: str) -> _Step:
    def step(builder: ir.IRBuilder, sums: Value, quad: Value) -> Value:
        return call(builder, name, sums.type, [sums, quad, quad])

    return step


# For each instruction set the peak that it adds to those of the sets it includes.
PEAKS = {
    "avx2": Peak("vpmaddubsw + vpaddw, 256 bit", 16, 16, _pairs),
    "avx-vnni": Peak("vpdpbusd, 256 bit", 8, 32, _dot("llvm.x86.avx512.vpdpbusd.256")),
    "avx512-vnni": Peak("vpdpbusd, 512 bit", 16, 32, _dot("llvm.x86.avx512.vpdpbusd.512")),
    "neon-dot": Peak("sdot, 128 bit", 4, 32, _dot("llvm.aarch64.neon.sdot.v4i32.v16i8")),
}


def available_peaks() -> dict[str, Peak]:
    """Give the peaks of this CPU by their instruction set, plainest first; empty on other CPUs."""
    available = {isa.name for isa in available_instruction_sets()}
    return {name: peak for name, peak in PEAKS.items() if name in available}


@cache
def peak_task(isa_name: str) -> Native:
    """Compile the task of a peak: an item runs its chains for a while.

    Arguments: turns, at least 1; address of `n_bytes` bytes to multiply with; address of the first
    sums, [items, CHAINS, n_bytes], each replaced by its last one.
    """

    def peak(header: int, arguments: int, item: int, thread: int) -> None:
        _run(isa_name, word(arguments, 0), word(arguments, 1), word(arguments, 2), item)

    return task(peak)


@intrinsic(prefer_literal=True)
def _run(typingctx: Any, isa_name: Any, turns: Any, factors: Any, results: Any, item: Any) -> Any:
    if not isinstance(isa_name, types.Literal):
        return None
    peak = PEAKS[isa_name.literal_value]

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        _write(builder, peak, *arguments[1:])
        return context.get_dummy_value()

    return types.none(isa_name, *(types.int64,) * 4), codegen


def _write(
    builder: ir.IRBuilder, peak: Peak, turns: Value, factors: Value, results: Value, item: Value
) -> None:
    """Write the code of an item."""
    quad = load(builder, pointer(builder, factors), vector(INT8, peak.n_bytes), 1)
    own = builder.mul(item, ir.Constant(item.type, CHAINS * peak.n_bytes))
    base = builder.add(results, own)
    places = [
        pointer(builder, builder.add(base, ir.Constant(item.type, chain * peak.n_bytes)))
        for chain in range(CHAINS)
    ]
    first = [load(builder, place, peak.sums, 1) for place in places]
    last = loop(
        builder,
        turns,
        first,
        lambda _, sums: [peak.step(builder, each, quad) for each in sums],
    )
    for place, sums in zip(places, last, strict=True):
        store(builder, sums, place, 1)

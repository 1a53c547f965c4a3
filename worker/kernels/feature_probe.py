"""Which instruction sets the CPU has that Numba compiles for.

An LLVM intrinsic that the CPU lacks ends the process while it is compiled, so nothing is tried:
small functions without such intrinsics are compiled for the same CPU, and their assembly shows
which instructions LLVM chose by itself. Numba lets ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES``
stand for the host's CPU; so does this.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import get_host_cpu_features

from .isa import InstructionSet
from .isa_dot import Avx512Vnni, AvxVnni, NeonDot
from .isa_pairs import Avx2, Generic

INSTRUCTION_SETS: Mapping[str, InstructionSet] = MappingProxyType(
    {isa.name: isa for isa in (Avx512Vnni(), AvxVnni(), Avx2(), NeonDot(), Generic())}
)
"""All instruction sets by name, the best ones first; the last one runs anywhere."""

_DOT = """
declare i32 @llvm.vector.reduce.add.v{lanes}i32(<{lanes} x i32>)
define i32 @{extend}_dot{lanes}(<{lanes} x i8> %w, <{lanes} x i8> %x) {{
  %a = {extend} <{lanes} x i8> %w to <{lanes} x i32>
  %b = sext <{lanes} x i8> %x to <{lanes} x i32>
  %products = mul <{lanes} x i32> %a, %b
  %sum = call i32 @llvm.vector.reduce.add.v{lanes}i32(<{lanes} x i32> %products)
  ret i32 %sum
}}
"""
_PROBES = (
    _DOT.format(lanes=64, extend="zext")
    + _DOT.format(lanes=32, extend="zext")
    + _DOT.format(lanes=16, extend="sext")
    + """
define <8 x i32> @add(<8 x i32> %a, <8 x i32> %b) {
  %sum = add <8 x i32> %a, %b
  ret <8 x i32> %sum
}
define <8 x float> @widen(<8 x half> %halves) {
  %floats = fpext <8 x half> %halves to <8 x float>
  ret <8 x float> %floats
}
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
define <8 x float> @fuse(<8 x float> %a, <8 x float> %b, <8 x float> %c) {
  %sum = call <8 x float> @llvm.fma.v8f32(<8 x float> %a, <8 x float> %b, <8 x float> %c)
  ret <8 x float> %sum
}
"""
)


def best_instruction_set() -> InstructionSet:
    """Give the best one that may be compiled in this process."""
    return available_instruction_sets()[0]


@cache
def available_instruction_sets() -> tuple[InstructionSet, ...]:
    """Give all that may be compiled in this process, the best ones first."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu = llvm.get_host_cpu_name() if config.CPU_NAME is None else config.CPU_NAME
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return instruction_sets_of(llvm.get_process_triple(), cpu, features)


def instruction_sets_of(triple: str, cpu: str, features: str = "") -> tuple[InstructionSet, ...]:
    """Give the instruction sets of a CPU, the best ones first.

    Args:
        triple: of the target, as LLVM writes it; its code generator must be initialised.
        cpu: LLVM's name of the CPU.
        features: added to the CPU's own, as ``+fma,-avx512f``.
    """
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{_PROBES}')
    assembly = machine.emit_assembly(module)
    return tuple(
        isa
        for isa in INSTRUCTION_SETS.values()
        if all(re.search(mark, assembly) for mark in isa.marks)
    )

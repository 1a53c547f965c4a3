"""Machine code for CPUs that need not be there."""

import re

import llvmlite.binding as llvm
from llvmlite import ir

from worker.kernels.isa_ir import INT64

CPUS = {
    "avx512-vnni": ("x86_64-unknown-linux-gnu", "icelake-server"),
    "avx-vnni": ("x86_64-unknown-linux-gnu", "alderlake"),
    "avx2": ("x86_64-unknown-linux-gnu", "znver3"),
    "neon-dot": ("arm64-apple-macosx14", "apple-m1"),
}


def machine_code(isa, arguments, emit):
    """Optimised assembly of a function of int64 arguments that emit(builder, arguments) writes."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple, cpu = CPUS[isa]
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * arguments), "tile")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(builder, function.args)
    builder.ret_void()
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    parsed = llvm.parse_assembly(str(module))
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(parsed, passes)
    return machine.emit_assembly(parsed)


def jumps_back(code):
    """Lines of the code, and (target, jump) of each jump to a line before it."""
    lines = [line.strip() for line in code.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"[\w.$]+:", line)}
    jumps = []
    for end, line in enumerate(lines):
        jump = re.fullmatch(r"(?:j|b|cb|tb)[\w.]*\t(?:.*, )?([\w.$]+)", line)
        start = labels.get(jump[1], end) if jump else end
        if start < end:
            jumps.append((start, end))
    return lines, jumps


def loops(code):
    """Bodies of all loops: the lines that a jump back repeats."""
    lines, jumps = jumps_back(code)
    return [lines[start + 1 : end + 1] for start, end in jumps]

"""The machine code of attention's tiles, for CPUs that need not be there."""

import re
from functools import cache

import pytest

from worker.kernels.attention_tiles import AVX2, AVX512, MOST_ROWS, NEON, emit_scores, emit_values
from worker.kernels.half import StoredFloats

from .machine_code import CPUS, jumps_back, machine_code

REGISTERS = {"avx512-vnni": AVX512, "avx-vnni": AVX2, "avx2": AVX2, "neon-dot": NEON}
EMIT = {"scores": (emit_scores, 6), "values": (emit_values, 7)}
X86 = [name for name in CPUS if name != "neon-dot"]
FUSED = {"neon-dot": r"\bfmla\b", **dict.fromkeys(X86, r"\bvfmadd\w+ps\b")}
CONVERTED = {"neon-dot": r"\bfcvtl2?\b", **dict.fromkeys(X86, r"\bvcvtph2psx?\b")}


@cache
def assembly(isa, product, is_half, rows):
    """Optimised code of a tile."""
    emit_tile, count = EMIT[product]

    def emit(builder, arguments):
        emit_tile(builder, REGISTERS[isa], StoredFloats(is_half, True), rows, list(arguments))

    return machine_code(isa, count, emit)


def innermost_loops(code, instruction):
    """Runs of instructions that jump back, hold the instruction and no such run."""
    lines, jumps = jumps_back(code)
    spans = []
    for start, end in jumps:
        if not any(start < other for other, _ in spans):
            spans.append((start, end))
    bodies = [lines[start + 1 : end + 1] for start, end in spans]
    return [body for body in bodies if any(re.search(instruction, line) for line in body)]


@pytest.mark.parametrize("rows", range(1, MOST_ROWS + 1))
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("product", EMIT)
@pytest.mark.parametrize("isa", CPUS)
def test_tiles_stay_in_vector_registers(isa, product, is_half, rows):
    """One instruction multiplies and adds, one converts float16, no vector goes to the stack."""
    code = assembly(isa, product, is_half, rows)
    assert not re.search(r"\bcall|\bbl\t|\bblr\b", code)
    assert [] == re.findall(r".*[xyz]mm\d+.*\(%rsp\).*|.*\(%rsp\).*[xyz]mm\d+.*", code)
    assert [] == re.findall(r".*\bq\d+.*\[sp.*", code)
    found = innermost_loops(code, FUSED[isa])
    if is_half:
        assert all(any(re.search(CONVERTED[isa], line) for line in loop) for loop in found)
    # The widest of them keeps as many sums as there is room for; it may take several turns at once.
    counts = [sum(bool(re.search(FUSED[isa], line)) for line in loop) for loop in found]
    in_a_vector = 2 if isa == "neon-dot" else 1
    assert 0 == max(counts) % (rows * REGISTERS[isa].vectors(rows, is_half) * in_a_vector)

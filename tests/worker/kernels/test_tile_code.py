"""The machine code of tiles, for CPUs that need not be there: the right instruction, no stack."""

import re
from functools import cache

import pytest
from gguf import GGMLQuantizationType as QType

from worker.kernels.feature_probe import INSTRUCTION_SETS
from worker.kernels.tile import write_tile

from .machine_code import CPUS, loops, machine_code

QUANTS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
FLOATS = ("F16", "BF16", "F32")
COLUMNS = (1, 2, 4, 8)
# The instruction that multiplies, with the form of its operands.
PRODUCTS = {
    "avx512-vnni": r"vpdpbusd\t-?\d*\(.*\)\{1to16\}, %zmm\d+, %zmm\d+",
    "avx-vnni": r"vpdpbusd\t%ymm\d+, %ymm\d+, %ymm\d+",
    "avx2": r"vpmaddubsw\t%ymm\d+, %ymm\d+, %ymm\d+",
    "neon-dot": r"sdot\tv\d+, v\d+, v\d+\[\d\]",
}
FUSED = {"neon-dot": "fmla"}
# Constants, scales and sums that there are no registers for, by type; all others have none.
ON_STACK = {"Q2_K": 3, "Q3_K": 4, "Q6_K": 4}


@cache
def assembly(isa, name, columns):
    """Optimised code of a tile."""

    def emit(builder, arguments):
        write_tile(builder, QType[name], INSTRUCTION_SETS[isa], columns, arguments)

    return machine_code(isa, 6, emit)


def inner_loop(code, instruction):
    """The shortest run of instructions that an instruction is in and that jumps back."""
    bodies = [[line for line in body if re.match(r"[a-z{]", line)] for body in loops(code)]
    return min((b for b in bodies if any(re.search(instruction, line) for line in b)), key=len)


def stack_accesses(loop):
    """Instructions that have to do with the stack."""
    return [line for line in loop if re.search(r"%rsp|\bsp\b", line)]


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("isa", CPUS)
def test_integer_products(isa, name, columns):
    """All products come from the one instruction, in its cheapest form, on registers."""
    mnemonic = PRODUCTS[isa].partition("\\")[0]
    loop = inner_loop(assembly(isa, name, columns), rf"\b{mnemonic}\b")
    products = [line for line in loop if re.search(rf"\b{mnemonic}\b", line)]
    assert [] == [line for line in products if not re.search(PRODUCTS[isa], line)]
    assert len(stack_accesses(loop)) <= ON_STACK.get(name, 0)


@pytest.mark.parametrize("isa", CPUS)
def test_each_product_is_computed_once(isa):
    """Sixteen rows times 32 columns times four tokens: no instruction more than that takes."""
    lanes = INSTRUCTION_SETS[isa].rows
    loop = inner_loop(assembly(isa, "Q8_0", 4), PRODUCTS[isa])
    count = sum(bool(re.search(PRODUCTS[isa], line)) for line in loop)
    together = {"avx512-vnni": 4 * 16, "avx2": 4 * 8, "avx-vnni": 8, "neon-dot": 8}[isa]
    assert 8 * together // lanes == count


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("isa", CPUS)
def test_fused_products(isa, name, columns):
    """Plain floats are multiplied and added in one instruction, in registers."""
    loop = inner_loop(assembly(isa, name, columns), FUSED.get(isa, "vfmadd"))
    assert [] == stack_accesses(loop)

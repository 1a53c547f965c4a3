"""Tiles: one row block of a packed weight times a few tokens, one compiled function each.

``tile(weights, x, x_stride, out, out_stride, blocks)`` multiplies the 16 rows at `weights` (see
`layouts`) with the tokens at ``x``, ``x + x_stride``, ... and writes 16 float32 numbers for each to
``out``, ``out + out_stride``, ... Strides are bytes. For quantised types a token is a row of
records (see `Column`) and `blocks` is the number of columns / 32; for floats it is a row of float32
and `blocks` is the number of columns. `blocks` is at least 1.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from gguf.constants import GGMLQuantizationType
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .feature_probe import (
    INSTRUCTION_SETS,
    available_instruction_sets,
    best_instruction_set,
)
from .isa import InstructionSet
from .layouts import layout_of
from .native import Native
from .tile_floats import FloatTile
from .tile_frame import ARGUMENTS, Tile
from .tile_narrow import NarrowTile
from .tile_scales import SCHEMES
from .tile_wide import WideTile


def tiles(qtype: GGMLQuantizationType, isa: InstructionSet | None = None) -> Mapping[int, Native]:
    """Give the tiles of a tensor type by their number of columns (tokens): 1, 2, 4 and 8.

    Nothing is compiled before a tile's address is asked for.

    Args:
        qtype: a type that has a packed layout.
        isa: the CPU's best instruction set when not given.

    Raises:
        ValueError: the CPU lacks the instruction set, which would end the process.
    """
    chosen = isa or best_instruction_set()
    available = [known.name for known in available_instruction_sets()]
    if chosen.name not in available:
        raise ValueError(
            f"tiles for {chosen.name} cannot run on this CPU, which has {', '.join(available)}; "
            "name one of these or none"
        )
    return _tiles(qtype, chosen.name)


@cache
def _tiles(qtype: GGMLQuantizationType, isa_name: str) -> Mapping[int, Native]:
    return MappingProxyType(
        {columns: _tile(int(qtype), isa_name, columns) for columns in (1, 2, 4, 8)}
    )


def _tile(qtype: int, isa_name: str, columns: int) -> Native:
    def tile(weights: int, x: int, x_stride: int, out: int, out_stride: int, blocks: int) -> None:
        _multiply(qtype, isa_name, columns, weights, x, x_stride, out, out_stride, blocks)

    return Native(tile, ARGUMENTS)


def write_tile(
    builder: ir.IRBuilder,
    qtype: GGMLQuantizationType,
    isa: InstructionSet,
    columns: int,
    arguments: Sequence[Any],
) -> None:
    """Write the code of a tile at the builder's position; `arguments` are six int64 values."""
    layout = layout_of(qtype)
    assert layout is not None, f"{qtype.name} has no packed layout"
    kind: type[Tile] = FloatTile
    if layout.planes:
        is_wide = isa.is_wide(SCHEMES[qtype].codes, columns)
        kind = WideTile if is_wide else NarrowTile
    kind(builder, layout, isa, columns, arguments).write()


@intrinsic(prefer_literal=True)
def _multiply(
    typingctx: Any,
    qtype: Any,
    isa_name: Any,
    columns: Any,
    weights: Any,
    x: Any,
    x_stride: Any,
    out: Any,
    out_stride: Any,
    blocks: Any,
) -> Any:
    literals = (qtype, isa_name, columns)
    if not all(isinstance(literal, types.Literal) for literal in literals):
        return None
    kind = GGMLQuantizationType(qtype.literal_value)
    isa = INSTRUCTION_SETS[isa_name.literal_value]

    def codegen(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        write_tile(builder, kind, isa, columns.literal_value, arguments[len(literals) :])
        return context.get_dummy_value()

    return types.none(*literals, *(types.int64,) * ARGUMENTS), codegen

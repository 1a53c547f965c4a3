"""How large the values of a row are, without looking at a single one in Python."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_FIXED_WIDTH_BYTES: Final = 8  # what a number counts, whatever its width


def row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the size of each row's values in bytes, int64 [rows]."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _value_bytes(column)
    return sizes


def _value_bytes(array: pa.Array) -> NDArray[np.int64]:
    kind = array.type
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return _lengths(array, np.int64)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return _lengths(array, np.int32)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = np.asarray(array.offsets, np.int64)
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        ends = np.zeros(len(values) + 1, np.int64)
        np.cumsum(_value_bytes(values), out=ends[1:])
        starts = offsets - offsets[0]
        lists: NDArray[np.int64] = ends[starts[1:]] - ends[starts[:-1]]
        return lists
    if pa.types.is_struct(kind):
        sizes = np.zeros(len(array), np.int64)
        for index in range(kind.num_fields):
            sizes += _value_bytes(array.field(index))
        return sizes
    return np.full(len(array), _FIXED_WIDTH_BYTES, np.int64)


def _lengths(array: pa.Array, dtype: type[np.signedinteger[Any]]) -> NDArray[np.int64]:
    """Return the byte length of each string, from offsets of the given width."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    offsets = np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)

"""Streaming reads of the dataset: each row group once, in order, in bounded batches."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from .dataset import InputDataset, InputFile
from .errors import InputError
from .footer import DAMAGED, RowGroup, advice_on, open_parquet, open_regular, read_tail
from .input_columns import MESSAGES, PROMPT, SAMPLING_PARAMS, TOOLS, is_text, storage_type
from .input_files import display

_BATCH_BYTES: Final = 8 << 20
_REPEATED_BYTES: Final = 128 << 20
_MOST_ROWS: Final = 1024
_FEWEST_ROWS: Final = 8

BatchView = Callable[[InputFile, pa.RecordBatch], pa.RecordBatch]
"""Turns a batch as it was read into the columns that the reader's user wants."""


def read_requests(dataset: InputDataset, first_row: int = 0) -> "RowReader":
    """Return a cursor over prompt, messages, tools and sampling parameters under their fixed names.

    Text becomes ``large_binary``: Arrow does not check UTF-8 on reading, the row that breaks it
    is found when it is decoded.
    """
    columns = dataset.columns
    names = {
        PROMPT: columns.prompt,
        MESSAGES: columns.messages,
        TOOLS: columns.tools,
        SAMPLING_PARAMS: columns.sampling_params,
    }
    used = {name: own for name, own in names.items() if own is not None}

    def view(_: InputFile, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = {name: _as_bytes(batch.column(own)) for name, own in used.items()}
        return pa.RecordBatch.from_pydict(arrays)

    return RowReader(dataset, view, columns.names(), first_row)


def read_user_columns(dataset: InputDataset, first_row: int = 0) -> "RowReader":
    """Return a cursor over all the user's columns, those of folder names included."""
    schema = dataset.schema

    def view(file: InputFile, batch: pa.RecordBatch) -> pa.RecordBatch:
        constants = dict(file.partitions)
        arrays = [
            pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
            if field.name in constants
            else batch.column(field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return RowReader(dataset, view, None, first_row)


class RowReader:
    """A cursor that moves forward over the dataset's rows.

    It holds one decoded batch at a time. A batch is bounded through the footer's sizes; a value
    that a dictionary repeats is bounded too, so a small file cannot blow up in memory.

    Args:
        dataset: what to read.
        view: which columns come out.
        columns: the columns to read; None for all.
        first_row: row id to start at.
    """

    def __init__(
        self,
        dataset: InputDataset,
        view: BatchView,
        columns: Sequence[str] | None,
        first_row: int,
    ) -> None:
        self.next_row = first_row
        self._dataset = dataset
        self._view = view
        self._columns = columns
        self._pending: deque[pa.RecordBatch] = deque()
        self._batches = _batches(dataset, view, columns, first_row)

    def read(self, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the next ``num_rows`` rows in batches; fewer at the end of the dataset.

        Raises:
            InputError: a data page cannot be read; file and row group are named.
        """
        while num_rows > 0:
            batch = self._pending.popleft() if self._pending else next(self._batches, None)
            if batch is None:
                return
            if batch.num_rows > num_rows:
                self._pending.appendleft(batch.slice(num_rows))
                batch = batch.slice(0, num_rows)
            self.next_row += batch.num_rows
            num_rows -= batch.num_rows
            yield batch

    def skip_to(self, row_id: int) -> None:
        """Move forward to a row. Row groups between its own and the present one are not decoded.

        Raises:
            InputError: as ``read``.
        """
        assert row_id >= self.next_row, "a cursor moves forward only"
        if self._dataset.row_group_of(row_id) == self._dataset.row_group_of(self.next_row):
            for _ in self.read(row_id - self.next_row):
                pass
            return
        self._batches.close()
        self._pending.clear()
        self._batches = _batches(self._dataset, self._view, self._columns, row_id)
        self.next_row = row_id

    def give_back(self, batch: pa.RecordBatch) -> None:
        """Put the tail of the batch that was read last back before the cursor."""
        if batch.num_rows:
            self._pending.appendleft(batch)
            self.next_row -= batch.num_rows


def _batches(
    dataset: InputDataset,
    view: BatchView,
    columns: Sequence[str] | None,
    first_row: int,
) -> Generator[pa.RecordBatch]:
    for file in dataset.files:
        skip = first_row - file.first_row
        if file.num_rows <= max(skip, 0):
            continue
        for batch in _file_batches(file, columns, max(skip, 0)):
            yield view(file, batch)


def _file_batches(
    file: InputFile, columns: Sequence[str] | None, skip: int
) -> Iterator[pa.RecordBatch]:
    with _open(file) as parquet:
        for index, group in enumerate(file.row_groups):
            if skip >= group.num_rows:
                skip -= group.num_rows
                continue
            batches = parquet.iter_batches(
                batch_rows(group), row_groups=[index], columns=columns, use_threads=False
            )
            for batch in _checked(batches, file, index, group):
                if skip < batch.num_rows:
                    yield batch.slice(skip)
                skip = max(0, skip - batch.num_rows)


@contextmanager
def _open(file: InputFile) -> Iterator[pq.ParquetFile]:
    """Open a file whose footer was read before; it may have gone or changed meanwhile."""
    name = display(str(file.path))
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_regular(file.path, name))
            tail = read_tail(opened, name)
            if (tail.size, tail.sha256) != (file.size, file.footer_sha256):
                raise InputError(
                    f"{name}: the file has changed since the run started: it had {file.size} bytes "
                    f"and footer SHA-256 {file.footer_sha256[:12]}, now {tail.size} and "
                    f"{tail.sha256[:12]}; leave inputs alone while a run lasts"
                )
            parquet = open_parquet(opened)
        except (OSError, pa.ArrowException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
            raise InputError(
                f"{name}: cannot be read any more ({reason}); leave inputs alone while a run lasts"
            ) from error
        yield parquet


def _checked(
    batches: Iterator[pa.RecordBatch], file: InputFile, index: int, group: RowGroup
) -> Iterator[pa.RecordBatch]:
    """Yield the row group's batches; name file and row group when one cannot be read."""
    where = f"{display(str(file.path))}: row group {index}"
    read = 0
    while True:
        try:
            batch = next(batches, None)
        except (OSError, pa.ArrowException, ValueError, RuntimeError) as error:
            reason = str(error).split("\n", 1)[0]
            raise InputError(
                f"{where} cannot be read after row {read} ({reason}): {advice_on(error)}"
            ) from error
        if batch is None:
            break
        read += batch.num_rows
        yield batch
    if read != group.num_rows:
        raise InputError(f"{where} has {read} rows, its footer counts {group.num_rows}: {DAMAGED}")


def batch_rows(group: RowGroup) -> int:
    """Return how many rows of a row group are decoded at a time.

    The mean row bounds a batch of plain values. A value in a dictionary is stored once and may come
    back in every row: it is at most as large as the row group.
    """
    if not group.num_bytes or not group.num_rows:
        return _MOST_ROWS
    by_mean = max(1, _BATCH_BYTES * group.num_rows // group.num_bytes)
    by_repetition = max(_FEWEST_ROWS, _REPEATED_BYTES // group.num_bytes)
    return min(by_mean, by_repetition, _MOST_ROWS)


def _as_bytes(array: pa.Array) -> pa.Array:
    """Return text as ``large_binary``, whatever kind of text it is; other types unchanged."""
    if not is_text(array.type):
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(storage_type(array.type)):
        array = array.dictionary_decode()
    return array.cast(pa.large_binary())

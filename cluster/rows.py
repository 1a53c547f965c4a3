"""From the rows of a shard to engine requests; what cannot become one is a row error."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from worker.engine.completion import Completion, FinishReason
from worker.engine.request import Request, RowId
from worker.engine.sampling_params import SamplingParams
from worker.errors import RowError, SamplingParamsError

from .input_columns import MESSAGES, PROMPT, SAMPLING_PARAMS, TOOLS


def requests_of(
    payload: bytes, first_row: int, defaults: SamplingParams, max_n: int = 1
) -> Iterator[Request | Completion]:
    """Yield one Request for each row, or the failed Completion that answers the row at once.

    Args:
        payload: the shard's requests as an Arrow IPC stream: any of ``prompt`` and ``messages``
            (``large_binary`` text or list of struct), ``tools`` (the same) and
            ``sampling_params``.
        first_row: row id of the first row.
        defaults: what a row's own sampling parameters override; a row may ask for
            log-probabilities if they do.
        max_n: most completions that a row may ask for.
    """
    row_id = first_row
    with pa.ipc.open_stream(payload) as batches:
        for batch in batches:
            for index in range(batch.num_rows):
                yield _request_or_error(batch, index, RowId(row_id), defaults, max_n)
                row_id += 1


def failed(row_id: RowId, error: RowError) -> Completion:
    """Return the completion of a row that no engine could answer."""
    return Completion(
        row_id=row_id,
        text=None,
        finish_reason=FinishReason.ERROR,
        error=str(error),
        error_kind=error.kind,
    )


def _request_or_error(
    batch: pa.RecordBatch, index: int, row_id: RowId, defaults: SamplingParams, max_n: int
) -> Request | Completion:
    try:
        return _request(batch, index, row_id, defaults, max_n)
    except RowError as error:
        return failed(row_id, error)


def _request(
    batch: pa.RecordBatch, index: int, row_id: RowId, defaults: SamplingParams, max_n: int
) -> Request:
    cells = {name: _cell(batch, name, index) for name in batch.schema.names}
    overrides = cells.pop(SAMPLING_PARAMS, None)
    if isinstance(overrides, bytes):
        overrides = _text(SAMPLING_PARAMS, overrides)
    sampling = SamplingParams.from_cell(overrides, defaults)
    if sampling.logprobs is not None and defaults.logprobs is None:
        raise SamplingParamsError(
            f"sampling_params: logprobs {sampling.logprobs} has no column to go to; add logprobs "
            "to cluster.output_columns"
        )
    if sampling.n > max_n:
        raise SamplingParamsError(
            f"sampling_params: n {sampling.n} is more than cluster.max_n {max_n}; lower n or raise "
            "cluster.max_n"
        )
    if (messages := _objects(MESSAGES, cells.get(MESSAGES))) is not None:
        if not messages:
            raise RowError("messages: the list is empty")
        tools = _objects(TOOLS, cells.get(TOOLS)) or None
        return Request(row_id=row_id, messages=messages, tools=tools, sampling=sampling)
    if (prompt := cells.get(PROMPT)) is not None:
        return Request(row_id=row_id, prompt=_text(PROMPT, prompt), sampling=sampling)
    columns = [name for name in (PROMPT, MESSAGES) if name in cells]
    raise RowError(f"{' and '.join(columns)} {'is' if len(columns) == 1 else 'are'} null")


def _cell(batch: pa.RecordBatch, name: str, index: int) -> Any:  # noqa: ANN401 - a cell's value
    try:
        return batch.column(name)[index].as_py()
    except UnicodeDecodeError:
        raise RowError(f"{name} is not valid UTF-8") from None
    except (ValueError, OverflowError) as error:
        raise RowError(f"{name}: a value cannot be read ({error})") from None


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RowError(f"{name} is not valid UTF-8") from None


def _objects(name: str, value: bytes | list[Any] | None) -> list[Mapping[str, Any]] | None:
    """Return a list of messages or tools; None for null, JSON's null included."""
    if isinstance(value, bytes):
        objects = _parse_json(name, _text(name, value))
    else:
        objects = _without_nulls(value)
    if objects is None:
        return None
    if not isinstance(objects, list):
        raise RowError(f"{name}: a list is needed, found {_kind(objects)}")
    for index, each in enumerate(objects):
        if not isinstance(each, Mapping):
            raise RowError(f"{name}: an object is needed at {index}, found {_kind(each)}")
    return objects


def _parse_json(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        # JSON can spell half of a surrogate pair, which no UTF-8 text can hold.
        # And numbers like 1e999, which are infinite once they are read.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        raise RowError(f"{name}: invalid JSON at position {error.pos}: {error.msg}") from None
    except UnicodeEncodeError:
        raise RowError(f"{name}: invalid JSON: half of a surrogate pair") from None
    except RecursionError:
        raise RowError(f"{name}: invalid JSON: nested too deeply") from None
    except ValueError as error:
        raise RowError(f"{name}: invalid JSON: {error}") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any Arrow value
    """Drop null struct fields: Arrow gives every struct every field, templates ask for presence."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a list" if isinstance(value, list) else "a number")

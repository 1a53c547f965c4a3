"""From a shard's completions to the Arrow table that is committed for it."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from worker.engine.completion import Completion, TokenLogprobs

from .optional_column import OptionalColumn
from .output_columns import SHARD_SCHEMA


def shard_table(
    completions: Sequence[Completion],
    rows: range,
    *,
    worker_id: str,
    attempt: int,
    optional: frozenset[OptionalColumn],
) -> pa.Table:
    """Return the shard's results, one row for each of ``rows``, in row order.

    Generated tokens are always there, for the checksum; the optional columns are null unless they
    were asked for.

    Args:
        completions: in any order.
        rows: the shard's row ids.
        worker_id: who did it.
        attempt: which attempt this is, from 1.
        optional: columns asked for.
    """
    in_order = sorted(completions, key=lambda completion: completion.row_id)
    assert [c.row_id for c in in_order] == list(rows), "a row was lost or answered twice"
    records = [
        _record(completion, optional) | {"worker_id": worker_id, "attempts": attempt}
        for completion in in_order
    ]
    return pa.Table.from_pylist(records, schema=SHARD_SCHEMA)


def is_whole(table: pa.Table, rows: range) -> bool:
    """Tell whether a table has the shard schema and each of ``rows`` once, in order."""
    return bool(
        table.schema.equals(SHARD_SCHEMA) and table.column("row_id").to_pylist() == list(rows)
    )


def check_rows(table: pa.Table, rows: range) -> None:
    """Check that a table has the shard schema and each of ``rows`` once, in order."""
    assert table.schema.equals(SHARD_SCHEMA), "a worker sent other columns than agreed"
    assert table.column("row_id").to_pylist() == list(rows), "a worker sent other rows than asked"


def _record(completion: Completion, optional: frozenset[OptionalColumn]) -> dict[str, Any]:
    failed = completion.error is not None
    # A retry takes failed rows out of checksums as rows without tokens.
    assert not (failed and completion.token_ids), "a failed row has tokens"
    prompt, stop = completion.prompt_token_ids, completion.stop_reason
    record: dict[str, Any] = {
        "generated_text": completion.text,
        "finish_reason": str(completion.finish_reason),
        "stop_reason": None if stop is None else str(stop),
        "num_prompt_tokens": None if failed and not prompt else len(prompt),
        "num_generated_tokens": len(completion.token_ids),
        "error": completion.error,
        "generated_tokens": list(completion.token_ids),
        "further_tokens": [list(other.token_ids) for other in completion.others],
        "row_id": completion.row_id,
        "num_cached_tokens": completion.num_cached_tokens,
        "ttft_s": completion.ttft_s,
        "latency_s": completion.latency_s,
        "error_kind": None if completion.error_kind is None else str(completion.error_kind),
    }
    if OptionalColumn.PROMPT_TOKENS in optional:
        record["prompt_tokens"] = list(prompt)
    if OptionalColumn.LOGPROBS in optional and completion.logprobs is not None:
        record["logprobs"] = [_logprobs(entry) for entry in completion.logprobs]
    if OptionalColumn.COMPLETIONS in optional and not failed:
        record["completions"] = [_brief(each) for each in (completion, *completion.others)]
    return record


def _brief(completion: Completion) -> dict[str, Any]:
    return {
        "text": completion.text,
        "finish_reason": str(completion.finish_reason),
        "num_generated_tokens": len(completion.token_ids),
    }


def _logprobs(entry: TokenLogprobs) -> dict[str, Any]:
    top = [{"token_id": token, "logprob": logprob} for token, logprob in entry.top]
    return {"token_id": entry.token_id, "logprob": entry.logprob, "top": top}

"""The result columns that a run adds to the user's own: names, types, order."""

from typing import Final

import pyarrow as pa

from .errors import JobConfigError
from .optional_column import OptionalColumn

_COMPLETION: Final = [
    ("text", pa.string()),
    ("finish_reason", pa.string()),
    ("num_generated_tokens", pa.int64()),
]
_TOKEN_LOGPROB: Final = [("token_id", pa.int32()), ("logprob", pa.float32())]

RESULT_SCHEMA: Final = pa.schema(
    [
        ("generated_text", pa.string()),
        ("finish_reason", pa.string()),
        ("stop_reason", pa.string()),
        ("num_prompt_tokens", pa.int64()),
        ("num_generated_tokens", pa.int64()),
        ("error", pa.string()),
        ("prompt_tokens", pa.list_(pa.int32())),
        ("generated_tokens", pa.list_(pa.int32())),
        (
            "logprobs",
            pa.list_(pa.struct([*_TOKEN_LOGPROB, ("top", pa.list_(pa.struct(_TOKEN_LOGPROB)))])),
        ),
        ("completions", pa.list_(pa.struct(_COMPLETION))),
    ]
)
"""All result columns. A shard file holds every one of them; a part those that were asked for."""

ROW_STATS_SCHEMA: Final = pa.schema(
    [
        ("row_id", pa.int64()),
        ("num_cached_tokens", pa.int64()),
        ("ttft_s", pa.float64()),
        ("latency_s", pa.float64()),
        ("worker_id", pa.string()),
        ("attempts", pa.int64()),
        ("error_kind", pa.string()),
    ]
)
"""What depends on the run: never in a part, in ``_stats/rows.parquet`` instead."""

SHARD_SCHEMA: Final = pa.schema(
    [*RESULT_SCHEMA, ("further_tokens", pa.list_(pa.list_(pa.int32()))), *ROW_STATS_SCHEMA]
)
"""The columns of a shard file: results and row statistics, committed together.

The tokens of a row's second and further completions are for the checksum and not in a part.
"""


def result_names(optional: frozenset[OptionalColumn]) -> list[str]:
    """Return the result columns of a part, before any prefix, in output order."""
    unwanted = set(OptionalColumn) - optional
    return [name for name in RESULT_SCHEMA.names if name not in unwanted]


def output_schema(user: pa.Schema, optional: frozenset[OptionalColumn], prefix: str) -> pa.Schema:
    """Return the schema of the parts: the user's columns, then the result columns.

    Raises:
        JobConfigError: a result column has the name of a user column; all of them are named.
    """
    fields = [RESULT_SCHEMA.field(name) for name in result_names(optional)]
    results = [field.with_name(prefix + field.name) for field in fields]
    taken = [field.name for field in results if field.name in set(user.names)]
    if taken:
        raise JobConfigError(
            f"input columns named like result columns: {', '.join(taken)}; "
            "rename them, or set output_prefix to a prefix for the result columns"
        )
    return pa.schema([*user, *results])

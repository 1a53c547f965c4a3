"""Turn configs/demo-prompts.yaml into configs/demo-prompts.parquet.

Usage: ``python configs/make_demo_prompts.py [OUTPUT]``. The rows of different tasks are dealt out
in turn, so that short and long, bad and good rows stand side by side, as in real datasets.
"""

import sys
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

SOURCE = Path(__file__).with_name("demo-prompts.yaml")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("task", pa.string()),
        ("prompt", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        (
            "sampling_params",
            pa.struct(
                [
                    ("temperature", pa.float64()),
                    ("top_k", pa.int64()),
                    ("top_p", pa.float64()),
                    ("min_p", pa.float64()),
                    ("seed", pa.int64()),
                    ("max_tokens", pa.int64()),
                    ("stop", pa.list_(pa.string())),
                    ("logprobs", pa.int64()),
                ]
            ),
        ),
    ]
)
ROLES = ("user", "assistant")


def conversation(turns: list[str], system: str | None) -> list[dict[str, str]]:
    """The messages of a conversation whose turns alternate, the user's first."""
    opening = [] if system is None else [{"role": "system", "content": system}]
    spoken = [{"role": ROLES[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return opening + spoken


def content(group: dict[str, Any], row: str | list[str] | dict[str, Any]) -> dict[str, Any]:
    """The ``prompt`` or ``messages`` column of one row of the page."""
    if isinstance(row, dict):
        prompt = row.get("prompt")
        prompt = None if prompt is None else prompt * row.get("repeat", 1)
        return {"prompt": prompt, "messages": row.get("messages")}
    if isinstance(row, list):
        return {"messages": conversation(row, group.get("system"))}
    return {"prompt": group.get("form", "{}").replace("{}", row)}


def group_rows(group: dict[str, Any]) -> list[dict[str, Any]]:
    """All rows of one group, each with the id ``<task>-<number>``."""
    task = group["task"]
    rows = []
    for number, row in enumerate(group["rows"], start=1):
        own = row.get("sampling") if isinstance(row, dict) else None
        rows.append(
            {
                "id": f"{task.replace(' ', '-')}-{number:02}",
                "task": task,
                "sampling_params": own or group.get("sampling"),
                **content(group, row),
            }
        )
    return rows


def demo_table() -> pa.Table:
    """The demo's prompts as the table that is shipped."""
    groups = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    dealt = chain.from_iterable(zip_longest(*map(group_rows, groups)))
    return pa.Table.from_pylist([row for row in dealt if row is not None], schema=SCHEMA)


if __name__ == "__main__":
    output = sys.argv[1] if len(sys.argv) > 1 else SOURCE.with_suffix(".parquet")
    pq.write_table(demo_table(), output, row_group_size=64, compression="zstd")

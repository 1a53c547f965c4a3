"""Rows in error, counted by kind."""

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc


def count_errors(results: pa.Table) -> Counter[str]:
    """Count the rows that failed, by their column ``error_kind``."""
    counts = pc.value_counts(results.column("error_kind").drop_null())
    return Counter({count["values"]: count["counts"] for count in counts.to_pylist()})


def in_words(errors: Mapping[str, int]) -> str:
    """Return the counts for people, the kinds in a fixed order."""
    return ", ".join(f"{errors[kind]:,} {kind}" for kind in sorted(errors) if errors[kind])

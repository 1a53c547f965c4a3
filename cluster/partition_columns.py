"""Columns that live in folder names, as Hive and Spark write them: ``lang=en/part-0.parquet``."""

from typing import Final
from urllib.parse import unquote

from .input_files import display

_NULL_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


def partition_values(relative: str) -> dict[str, str | None]:
    """Return the ``key=value`` folders of a file's relative path, outermost first.

    Values are text, percent-decoded as their writers encode them; Hive's name for null is None.
    The file's own name never counts.
    """
    values: dict[str, str | None] = {}
    for folder in relative.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if key and equals:
            text = unquote(display(value))
            values[unquote(display(key))] = None if value == _NULL_VALUE else text
    return values

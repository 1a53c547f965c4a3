"""Write the tables of docs/options.md from the code: every key, its default and its meaning.

Usage: ``python docs/make_options.py``, from the repository's root. What stands between the
lines ``<!-- table: NAME -->`` and ``<!-- end -->`` is replaced; the rest is written by hand.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cluster.config import ClusterConfig  # noqa: E402 - only importable with the root on the path
from jobs.config import JobConfig  # noqa: E402
from worker.engine.config import EngineConfig  # noqa: E402
from worker.engine.sampling_params import SamplingParams  # noqa: E402

PAGE = ROOT / "docs" / "options.md"
Row = tuple[str, str, str]


def model_rows(model: type[BaseModel]) -> Iterator[Row]:
    """Key, default and description of each field."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        yield name, shown_default(default), field.description or ""


def sampling_rows() -> Iterator[Row]:
    """The same of the sampling parameters, whose meanings stand in the class docstring."""
    text = inspect.cleandoc(SamplingParams.__doc__ or "").partition("Attributes:\n")[2]
    meanings = dict(re.findall(r"^ {4}(\w+): ((?:.|\n(?! {4}\w+: ))+)", text, re.MULTILINE))
    for field in fields(SamplingParams):
        meaning = " ".join(meanings[field.name].split())
        yield field.name, shown_default(field.default), meaning[0].upper() + meaning[1:]


def shown_default(value: Any) -> str:  # noqa: ANN401 - defaults have any type
    """A default as it would stand in the YAML file; nothing for a key that must be given."""
    if value is PydanticUndefined:
        return "(needed)"
    if isinstance(value, BaseModel | SamplingParams):
        return "see below"
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | frozenset):
        return f"[{', '.join(map(str, value))}]"
    return '""' if value == "" else str(value)


def table(rows: Iterator[Row]) -> str:
    """A Markdown table of keys."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, default, meaning in rows:
        meaning = re.sub(r"\bNone\b", "null", meaning).replace("|", r"\|")
        cells = (f"`{key}`", f"`{default}`", meaning)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def options_page(page: str) -> str:
    """The page with its tables made anew."""
    tables = {
        "job": table(model_rows(JobConfig)),
        "sampling": table(sampling_rows()),
        "engine": table(model_rows(EngineConfig)),
        "cluster": table(model_rows(ClusterConfig)),
    }
    for name, text in tables.items():
        place = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = place.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(options_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

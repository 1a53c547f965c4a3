"""``tokenmill inspect``: what a GGUF file holds, and whether tokenmill can run it."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

from worker.engine.prompting import tokenizer_of
from worker.errors import ModelError
from worker.gguf.file import check_types
from worker.gguf.summary import ModelSummary, TypeUsage, summarize
from worker.gguf.wording import shown
from worker.model_source import fetch_model
from worker.models.dequant_costs import DequantCosts, dequant_costs
from worker.models.registry import model_config
from worker.open_model import open_model
from worker.tokenizer.prompt_encoder import PromptEncoder
from worker.tokenizer.tokenizer import Tokenizer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a model file.

    Attributes:
        summary: the file's key figures.
        sizes: the model's hyperparameters; empty when they cannot be used.
        dequantised: what goes through the dequant cache, by compute mode; empty likewise.
        special_tokens: BOS, EOS and the tokens that end a completion; empty likewise.
        vocab_size: tokens of the tokenizer; None likewise.
        chat_templates: names of the model's own chat templates.
        problems: why tokenmill cannot run the model; empty when it can.
    """

    summary: ModelSummary
    sizes: dict[str, Any]
    dequantised: dict[str, DequantCosts]
    special_tokens: dict[str, Any]
    vocab_size: int | None
    chat_templates: tuple[str, ...]
    problems: tuple[str, ...]


def inspect_model(source: str) -> Inspection:
    """Look at a model without loading its weights.

    Raises:
        ModelSourceError: it cannot be fetched.
        GGUFError: it is not a sound GGUF file.
    """
    gguf = open_model(fetch_model(source), any_type=True)
    problems: list[str] = []
    _noting(problems, lambda: check_types(gguf.path, gguf.tensors.values()))
    config = _noting(problems, lambda: model_config(gguf))
    costs = None if problems else _noting(problems, lambda: dequant_costs(gguf))
    tokenizer = _noting(problems, lambda: tokenizer_of(gguf))
    if tokenizer is not None:
        now = datetime.now(UTC)
        _noting(problems, lambda: PromptEncoder.for_model(tokenizer, now=now))
    return Inspection(
        summary=summarize(gguf),
        sizes={} if config is None else asdict(config),
        dequantised=costs or {},
        special_tokens={} if tokenizer is None else _special_tokens(tokenizer),
        vocab_size=None if tokenizer is None else tokenizer.vocab_size,
        chat_templates=() if tokenizer is None else tuple(sorted(tokenizer.chat_templates)),
        problems=tuple(problems),
    )


def print_inspection(source: str, output_format: str) -> None:
    """Inspect a model and print the result as a table or as JSON."""
    inspection = inspect_model(source)
    if output_format == "json":
        print(json.dumps(as_json(inspection), ensure_ascii=False, indent=2))
    else:
        print("\n".join(as_lines(inspection)))


def as_json(inspection: Inspection) -> dict[str, Any]:
    """The inspection as the JSON object that is printed."""
    summary = inspection.summary
    file = {name: getattr(summary, name) for name in ModelSummary.__dataclass_fields__}
    file["path"] = str(summary.path)
    file["types"] = {name: asdict(usage) for name, usage in summary.types.items()}
    return file | {
        "sizes": inspection.sizes,
        "dequantised": {mode: asdict(costs) for mode, costs in inspection.dequantised.items()},
        "special_tokens": inspection.special_tokens,
        "chat_templates": list(inspection.chat_templates),
        "can_run": not inspection.problems,
        "problems": list(inspection.problems),
    }


def as_lines(inspection: Inspection) -> list[str]:
    """The inspection as aligned lines of name and value."""
    lines = list(_named_values(inspection))
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {value}" for name, value in lines]


def _named_values(inspection: Inspection) -> Iterator[tuple[str, str]]:
    summary = inspection.summary
    yield "file", str(summary.path)
    yield "size", f"{summary.n_bytes:,} bytes"
    yield "format", summary.container
    yield "architecture", shown(summary.architecture)
    yield "name", _value_text(summary.name)
    yield "parameters", f"{summary.n_parameters:,}"
    for name, usage in summary.types.items():
        yield "tensors", _usage_text(name, usage)
    for name, value in inspection.sizes.items():
        if name != "architecture":
            yield name.replace("_", " "), _value_text(value)
    for mode, costs in inspection.dequantised.items():
        yield f"{mode} dequantises", _costs_text(mode, costs)
        if costs.tensors:
            yield "dequant cache", _cache_text(costs)
    yield "tokenizer", _tokenizer_text(inspection)
    yield "vocabulary", _value_text(summary.vocab_size or inspection.vocab_size)
    for name, value in inspection.special_tokens.items():
        yield name.replace("_", " "), _value_text(value)
    yield "chat templates", _value_text(inspection.chat_templates) or "none"
    yield "can run", "no" if inspection.problems else "yes"
    for problem in inspection.problems:
        yield "because", problem


def _noting(problems: list[str], check: Callable[[], T]) -> T | None:
    """The check's answer; a model error becomes a problem and None."""
    try:
        return check()
    except ModelError as error:
        problems.append(str(error))
        return None


def _special_tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    ends = [tokenizer.piece_text(token_id) for token_id in sorted(tokenizer.end_ids)]
    return {"bos": tokenizer.bos_token, "eos": tokenizer.eos_token, "end_tokens": ends}


def _usage_text(name: str, usage: TypeUsage) -> str:
    return f"{name}: {usage.tensors} tensors, {usage.n_values:,} values, {usage.n_bytes:,} bytes"


def _tokenizer_text(inspection: Inspection) -> str:
    summary = inspection.summary
    if summary.tokenizer is None:
        return "none" if inspection.vocab_size is None else "tokenizer.json"
    return shown(f"{summary.tokenizer} ({summary.pre_tokenizer or 'no pre-tokenizer'})")


def _costs_text(mode: str, costs: DequantCosts) -> str:
    """Which tensors, those of one kind in all layers named once."""
    if mode == "f32":
        return f"all {len(costs.tensors)} matrices"
    if not costs.tensors:
        return "nothing: there are integer kernels for all types"
    kinds = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in costs.tensors)
    listed = [name if count == 1 else f"{count} x {name}" for name, count in kinds.items()]
    return f"{len(costs.tensors)} tensors: {', '.join(listed)}"


def _cache_text(costs: DequantCosts) -> str:
    whole = f"{costs.n_bytes:,} bytes for all, made once"
    if costs.least_bytes == costs.n_bytes:
        return whole
    return (
        f"{whole}; {costs.least_bytes:,} bytes at least, which makes up to {costs.step_bytes:,} "
        "bytes anew in each step"
    )


def _value_text(value: object) -> str:
    """A value for people: none for None, thousands separated, equal items of a list counted."""
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value_text(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        runs = [(_value_text(item), len(list(run))) for item, run in groupby(value)]
        return ", ".join(text if count == 1 else f"{count} x {text}" for text, count in runs)
    return shown(value)

"""What a user reads when a configuration does not validate: source, key, value, expected, fix."""

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_SHOWN = 80


def describe(
    error: ValidationError, model: type[BaseModel], source: str, flags: Collection[str]
) -> str:
    """All problems of one validation in one line.

    Args:
        error: what pydantic found.
        model: the model that was validated; its fields are the valid keys.
        source: the configuration file, as the user named it.
        flags: dotted keys that came from the command line instead of the file.
    """
    problems = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"])
        origin = "command line" if key in flags else source
        problems.append(f"{origin}: {_problem(key, dict(problem), model)}")
    return " | ".join(problems)


def valid_keys(model: type[Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a model and what is nested in it, in order of declaration."""
    for name, annotation in _fields(model):
        nested = nested_type(annotation)
        if nested is None:
            yield prefix + name
        else:
            yield from valid_keys(nested, f"{prefix}{name}.")


def nested_type(annotation: Any) -> type[Any] | None:  # noqa: ANN401 - any annotation
    """The model or dataclass that a field holds, also as ``X | None``; None for plain values."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and _fields(candidate):
            return candidate
    return None


def _fields(type_: type[Any]) -> list[tuple[str, Any]]:
    """Name and annotation of each field; empty for a type that has none."""
    if issubclass(type_, BaseModel):
        return [(name, field.annotation) for name, field in type_.model_fields.items()]
    if is_dataclass(type_):
        return [(field.name, field.type) for field in fields(type_)]
    return []


def nearest_key(key: str, keys: Collection[str]) -> str | None:
    """The valid key that was probably meant: same last name elsewhere, or a similar spelling."""
    last = key.rpartition(".")[2]
    for candidate in keys:
        if candidate.rpartition(".")[2] == last:
            return candidate
    close = get_close_matches(key, keys, n=1, cutoff=0.7)
    if close:
        return close[0]
    by_name = {candidate.rpartition(".")[2]: candidate for candidate in keys}
    similar = get_close_matches(last, by_name, n=1, cutoff=0.6)
    return by_name[similar[0]] if similar else None


def _problem(key: str, problem: dict[str, Any], model: type[BaseModel]) -> str:
    if problem["type"] == "extra_forbidden":
        keys = list(valid_keys(model))
        sections = {key.rpartition(".")[0] for key in keys} - {""}
        nearest = nearest_key(key, [*keys, *sorted(sections)])
        hint = f"did you mean {nearest}?" if nearest else "docs/options.md lists the keys"
        return f"unknown key {key}; {hint}"
    if problem["type"] == "missing":
        return f"key {key} is missing; set it in the file or on the command line"
    if problem["type"] == "value_error":
        message = str(problem["ctx"]["error"])
        return f"{key}: {message}" if key else message
    expected = problem["msg"].replace("Input should be", "expected")
    return f"{key}: found {_shown(problem['input'])}, {expected}"


def _shown(value: object) -> str:
    text = repr(value)
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{text} ({type(value).__name__})"

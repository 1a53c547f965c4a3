"""What a user reads when a configuration does not validate: source, key, value, expected, fix."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_SHOWN = 80


def describe(error: ValidationError, model: type[BaseModel], source: str, flags: Collection[str]) -> str:
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
    return "; ".join(problems)


def valid_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted key of a model and the models nested in it, in order of declaration."""
    for name, field in model.model_fields.items():
        nested = nested_model(field.annotation)
        if nested is None:
            yield prefix + name
        else:
            yield from valid_keys(nested, f"{prefix}{name}.")


def nested_model(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - any annotation
    """The pydantic model that a field holds, also as ``Model | None``; None for plain values."""
    candidates = (annotation, *get_args(annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


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
        nearest = nearest_key(key, list(valid_keys(model)))
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

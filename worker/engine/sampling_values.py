"""Checks of single sampling values, whoever wrote them: users, JSON, Arrow."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from operator import index
from typing import Any, SupportsIndex

from worker.errors import SamplingParamsError

Check = Callable[[str, Any], Any]
"""(name, value) -> the value in its own type; SamplingParamsError when it cannot be used."""

_SHOWN = 60


def number(low: float, high: float) -> Check:
    """A number in [low, high], as a float."""

    def check(name: str, value: object) -> float:
        converted = _real(name, value, "a number")
        # Written so that NaN, for which every comparison is false, does not pass.
        if not (low <= converted <= high):
            raise SamplingParamsError(f"{name}: {shown(value)} is not in [{low:g}, {high:g}]")
        return converted

    return check


def whole_number(low: int, high: int) -> Check:
    """A whole number in [low, high], as an int; an integral float is one."""

    def check(name: str, value: object) -> int:
        converted = _real(name, value, "a whole number")
        if not converted.is_integer():
            raise SamplingParamsError(f"{name}: {shown(value)} is not a whole number")
        exact = index(value) if isinstance(value, SupportsIndex) else int(converted)
        if not (low <= exact <= high):
            raise SamplingParamsError(f"{name}: {shown(value)} is not in [{low}, {high}]")
        return exact

    return check


def optional(check: Check) -> Check:
    """What ``check`` accepts, or None."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: object) -> bool:
    """True or False, nothing that only looks like it."""
    if not isinstance(value, bool):
        raise SamplingParamsError(f"{name}: {shown(value)} is not true or false")
    return value


def stop_strings(name: str, value: object) -> tuple[str, ...]:
    """One string or a list of strings, none of them empty."""
    items = [value] if isinstance(value, str) else _items(name, value, "strings")
    return tuple(_stop_string(name, item) for item in items)


def token_ids(name: str, value: object) -> tuple[int, ...]:
    """A list of token ids."""
    check = whole_number(0, 2**31 - 1)
    return tuple(check(name, item) for item in _items(name, value, "token ids"))


def shown(value: object) -> str:
    """A value as error messages show it: NaN and null by those names, never long."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _stop_string(name: str, item: object) -> str:
    if not isinstance(item, str):
        raise SamplingParamsError(f"{name}: {shown(item)} is not a string")
    if not item:
        raise SamplingParamsError(
            f"{name}: an empty string would end every text at once; leave it out"
        )
    return item


def _items(name: str, value: object, what: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise SamplingParamsError(f"{name}: {shown(value)} is not a list of {what}")
    return list(value)


def _real(name: str, value: object, what: str) -> float:
    """A number's value; bool is none, although Python counts it among the integers."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise SamplingParamsError(f"{name}: {shown(value)} is not {what}")
    try:
        return float(value)
    except OverflowError:
        raise SamplingParamsError(f"{name}: {shown(value)} is out of range") from None

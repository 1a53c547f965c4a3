"""What the operations of a template cost: a bound on the size of each result, from above."""

import re
from collections.abc import Sequence
from string import Formatter
from typing import Any

from jinja2 import TemplateRuntimeError

from .template_budget import TemplateBudget, flat_size

# Filters that look at no more than the outside of a value.
_SHALLOW_FILTERS = frozenset({"count", "d", "default", "first", "last", "length"})
# Filters that take microseconds an item or character.
_SLOW_FILTERS = frozenset(
    {"dictsort", "groupby", "pprint", "sort", "striptags", "unique", "urlize", "wordwrap"}
)
_SLOWNESS = 5
_DIVIDED_DIGITS = 100_000  # pairs of digits that cost a unit
# Some methods and filters compare each character of a text with each of another, or of the same
# word: so many pairs cost a unit.
_COMPARED_PAIRS = 1_000
_QUADRATIC_METHODS = frozenset(
    {"lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip"}
)
_PAIRS_OF_A_WORD = {"urlize": 50, "wordwrap": 1_000}
_FORMAT_METHODS = frozenset({"format", "format_map"})
_DIGITS = re.compile(r"\d+")


def operator_cost(budget: TemplateBudget, operator: str, left: object, right: object) -> int:
    """Bound the result of ``left operator right``."""
    if operator == "%" and isinstance(left, str):
        return _format_cost(budget, left, [right])
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        return (1 + flat_size(left)) * max(right, 0)
    if operator == "*":
        return _product_cost(left, right)
    if operator in {"//", "%"}:
        return _quotient_cost(left, right)
    return flat_size(left) + flat_size(right)


def call_cost(budget: TemplateBudget, called: object, args: Sequence[object]) -> int:
    """Bound what a function, macro or method reads and makes."""
    cost = budget.size(*args)
    method = getattr(called, "__wrapped__", called)  # the sandbox wraps str.format
    receiver = getattr(method, "__self__", None)
    if isinstance(receiver, str):
        return cost + _text_method_cost(budget, receiver, method, args)
    if isinstance(receiver, list | tuple):
        return cost * (1 + len(receiver))  # index and count compare with each item
    return cost


def filter_cost(budget: TemplateBudget, name: str, value: object, options: Sequence[object]) -> int:
    """Bound what ``value | name(options)`` reads and makes."""
    if name in _SHALLOW_FILTERS:
        return 0
    cost = budget.size(value, *options)
    if name == "format" and isinstance(value, str):
        return _format_cost(budget, value, options)
    if name == "replace" and len(options) > 1:
        return cost + _replaced(value, options[0], options[1])
    if name in {"indent", "join", "tojson"}:
        return cost * (1 + _widths(options) + _letters(options))
    if name in _PAIRS_OF_A_WORD:
        pairs = _pairs_of_words(value) // _PAIRS_OF_A_WORD[name]
        return cost * (_SLOWNESS + _letters(options)) + _widths(options) + pairs
    if name == "trim":
        return cost + _compared(value, options)
    if name == "round":
        return cost + _widths(options) ** 2  # it computes 10 ** precision
    if name == "sum":
        return cost * (1 + sum(map(flat_size, options)) + flat_size(value))
    return (cost + _widths(options)) * (_SLOWNESS if name in _SLOW_FILTERS else 1)


def test_cost(budget: TemplateBudget, values: Sequence[object]) -> int:
    """Bound what a test reads: comparisons look through both values, others at the outside."""
    if len(values) < 2:
        return sum(map(flat_size, values))
    return budget.size(*values) + _quotient_cost(values[0], values[1])  # divisibleby


def _product_cost(left: object, right: object) -> int:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(times, int) and not isinstance(sequence, int):
            return flat_size(sequence) * max(times, 0)
    return flat_size(left) + flat_size(right)


def _quotient_cost(left: object, right: object) -> int:
    """Count the digits, and for long numbers the quadratic time that Python takes to divide."""
    digits = flat_size(left), flat_size(right)
    is_long = isinstance(left, int) and isinstance(right, int)
    return sum(digits) + (digits[0] * digits[1] // _DIVIDED_DIGITS if is_long else 0)


def _text_method_cost(
    budget: TemplateBudget, text: str, method: object, args: Sequence[object]
) -> int:
    name = getattr(method, "__name__", "")
    if name in _FORMAT_METHODS:
        _refuse_nested_fields(text)
        return _format_cost(budget, text, args)
    if name == "join" and args:
        return len(text) * (1 + flat_size(args[0]))
    if name == "replace" and len(args) > 1:
        return len(text) + _replaced(text, args[0], args[1])
    if name in _QUADRATIC_METHODS:
        return len(text) + _compared(text, args)
    return len(text) + _widths(args)


def _format_cost(budget: TemplateBudget, pattern: str, args: Sequence[object]) -> int:
    """Bound a formatted text: every field may print everything, as wide as anything says."""
    fields = 1 + pattern.count("%") + pattern.count("{")
    # A width of 20 digits is past any budget; Python reads no more than 4,300.
    widths = sum(int(digits[:20]) for digits in _DIGITS.findall(pattern))
    stars = sum(_widths(arg if isinstance(arg, tuple | list) else [arg]) for arg in args)
    return len(pattern) + fields * (budget.size(*args) + stars) + widths


def _refuse_nested_fields(pattern: str) -> None:
    """Refuse ``{:{}}``: the width may lie anywhere in the arguments."""
    try:
        specs = [spec or "" for _, _, spec, _ in Formatter().parse(pattern)]
    except ValueError:
        return  # no pattern; formatting says so itself
    if any("{" in spec for spec in specs):
        raise TemplateRuntimeError(f"a field inside the field of {pattern[:100]!r}; write it out")


def _replaced(text: object, old: object, new: object) -> int:
    """Count the characters that replacing puts in."""
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        return text.count(old) * len(new)
    return 0


def _compared(text: object, others: Sequence[object]) -> int:
    """Charge for comparing a text with others, each character with each."""
    return flat_size(text) * sum(map(flat_size, others)) // _COMPARED_PAIRS


def _pairs_of_words(text: object) -> int:
    """Bound the pairs of characters that stand in one word."""
    if not isinstance(text, str):
        return 0
    return len(text) * max(map(len, text.split()), default=0)


def _letters(options: Sequence[object]) -> int:
    """Count the characters that options may put at every place; ``separators`` are a pair."""
    nested = [each for option in options if isinstance(option, list | tuple) for each in option]
    return sum(map(flat_size, [*options, *nested]))


def _widths(values: Sequence[Any]) -> int:
    """Add up integers, any of which may be the width of a text."""
    return sum(abs(value) for value in values if isinstance(value, int))

"""A bound on what rendering one prompt may cost.

Templates come from strangers: loops in loops, macros that call themselves twice, texts doubled
forty times. The bound counts work, not seconds, so the same row ends the same way on every
machine. Each loop turn, call, filter, test and operator is one step; besides, every operation
pays beforehand for the text and the items it is about to read or build.
"""

from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

from jinja2 import TemplateRuntimeError
from jinja2.utils import Namespace

STEP_COST = 20
_ITEM_COST = 5
_BASE = 5_000_000
_PER_CHARACTER = 64
_MOST_BITS = 60
_DEEPEST = 500


class QuietNamespace(Namespace):
    """A namespace that prints without its contents, which nothing would have paid for."""

    def __repr__(self) -> str:
        return "<namespace>"


class TemplateLimitError(TemplateRuntimeError):
    """A template did more than its budget allows."""


class TemplateBudget:
    """Units left for one rendering: 5 million and 64 for each character of the messages.

    Ordinary templates use a few thousand and a handful a character. Spending all of it takes a
    few seconds at most, and no value can become larger than the budget.
    """

    def __init__(self, messages: Any = None) -> None:  # noqa: ANN401 - any JSON value
        """Start a rendering of these messages."""
        self._left = 1 << 62
        self._total = _BASE + _PER_CHARACTER * self.size(messages)
        self._left = self._total

    def spend(self, units: int) -> None:
        """Take units off.

        Raises:
            TemplateLimitError: not that many are left.
        """
        self._left -= units
        if self._left < 0:
            raise TemplateLimitError(
                f"stopped after {self._total} units of work; the template loops too long or "
                "builds too large a text"
            )

    def size(self, *values: Any) -> int:  # noqa: ANN401 - values of a template
        """Count the characters and items of values, all levels down.

        A value that occurs many times in a nested one counts as often as it would be printed;
        counting stops where the budget does.

        Raises:
            TemplateLimitError: they are nested too deep: hashing them would overflow the stack.
        """
        total, depth = 0, 0
        level = list(values)
        while level and total <= self._left:
            if depth > _DEEPEST:
                raise TemplateLimitError(f"stopped at a value nested more than {_DEEPEST} deep")
            depth += 1
            level, cost = self._below(level, self._left - total)
            total += cost
        return total

    def _below(self, level: list[Any], most: int) -> tuple[list[Any], int]:
        """Give what the values of a level hold, and their cost; stop where it is too much."""
        below: list[Any] = []
        cost = 0
        for value in level:
            cost += _ITEM_COST + flat_size(value)
            if cost > most:
                break
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(
                value, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView
            ):
                below += value
        return below, cost


def checked_number(value: Any) -> Any:  # noqa: ANN401 - values of a template
    """Give the value back, unless it is an integer of more than 60 bits.

    Longer ones take long to compute with, and many that are multiples of 2 ** 61 - 1 have one hash:
    a set of them would take quadratic time.

    Raises:
        TemplateLimitError: it is one.
    """
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise TemplateLimitError(f"stopped at an integer of {value.bit_length()} bits; at most 60")
    return value


def flat_size(value: Any) -> int:  # noqa: ANN401 - values of a template
    """Count the characters of a text, the items of a collection, the digits of an integer."""
    if isinstance(value, int):
        return value.bit_length() // 3
    if isinstance(value, str | bytes | list | tuple | dict | set | frozenset | range):
        return len(value)
    return 0

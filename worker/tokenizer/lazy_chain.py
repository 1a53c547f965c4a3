"""Filters of a template that compute nothing until they are asked, one inside the other."""

from collections.abc import Iterable
from types import GeneratorType
from typing import Any
from weakref import WeakKeyDictionary

from .template_budget import TemplateLimitError

_LONGEST = 100


class LazyChain:
    """Bounds how many generators hold one another: Python frees them by recursion.

    A chain of tens of thousands would overflow the stack of the process.
    """

    def __init__(self) -> None:
        self._lengths: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def grow(self, result: object, sources: Iterable[object]) -> None:
        """Take note of what a filter made of its value and options.

        Raises:
            TemplateLimitError: the chain is too long.
        """
        if not isinstance(result, GeneratorType):
            return
        inner = [self._lengths.get(each, 0) for each in sources if isinstance(each, GeneratorType)]
        length = 1 + max(inner, default=0)
        if length > _LONGEST:
            raise TemplateLimitError(f"stopped at {length} lazy filters in one another")
        self._lengths[result] = length

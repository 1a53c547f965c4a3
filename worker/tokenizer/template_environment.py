"""The sandbox in which chat templates run."""

import json
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn, cast

from jinja2 import Environment, TemplateRuntimeError, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from . import operation_cost
from .generation_tag import GenerationTag
from .lazy_chain import LazyChain
from .template_budget import STEP_COST, QuietNamespace, TemplateBudget, checked_number, flat_size
from .template_meter import TemplateMeter

# Left out: what is random, and methods that make much out of little.
_RANDOM_FILTER = "random"
_RANDOM_GLOBAL = "lipsum"
_REFUSED_METHODS = frozenset(
    {"encode", "expandtabs", "from_bytes", "maketrans", "to_bytes", "translate"}
)
_DATA = (str, int, float, list, tuple, dict, KeysView, ValuesView, ItemsView, type(None))
_PASSED_BY_JINJA = (Context, Environment, nodes.EvalContext)


class RaisedByTemplateError(TemplateRuntimeError):
    """A template called ``raise_exception``."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, with every operation paid for from a budget.

    White space rules, loop controls, ``tojson``, ``raise_exception``, ``strftime_now`` and the
    ``generation`` tag are those of transformers' ``apply_chat_template``. Not thread-safe: the
    budget of the rendering under way is an attribute.

    Attributes:
        budget: of the rendering under way.
        guard: the character that must survive ``tojson`` with ``ensure_ascii``.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, now: datetime) -> None:
        """Make an environment.

        Args:
            now: what ``strftime_now`` tells, the same for a whole job.
        """
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
            finalize=_pay_for_output,
            optimized=False,  # constants would be computed while compiling, outside any budget
        )
        self.budget = TemplateBudget()
        self.guard: str | None = None
        self._lazy = LazyChain()
        del self.filters[_RANDOM_FILTER], self.globals[_RANDOM_GLOBAL]
        self.filters["tojson"] = self._to_json
        self.filters = {name: self._paid_filter(name, f) for name, f in self.filters.items()}
        self.tests = {
            name: self._paid_test(cast("Callable[..., Any]", f)) for name, f in self.tests.items()
        }
        self.globals["namespace"] = QuietNamespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = now.strftime

    def _generate(
        self,
        source: nodes.Template,
        name: str | None,
        filename: str | None,
        defer_init: bool = False,
    ) -> str:
        paid = TemplateMeter().visit(source)
        paid.set_environment(self)
        return super()._generate(paid, name, filename, defer_init)

    def turn(self, cost: int) -> bool:
        """Pay for a loop turn or a macro's body; compiled templates call this."""
        self.budget.spend(cost)
        return True

    def paid(self, value: Any) -> Any:  # noqa: ANN401 - values of a template
        """Pay for looking through a value; compiled templates call this."""
        self.budget.spend(self.budget.size(value))
        return value

    def copied(self, value: Any) -> Any:  # noqa: ANN401 - values of a template
        """Pay for a slice; compiled templates call this."""
        self.budget.spend(flat_size(value))
        return value

    def concat_text(self, *values: Any) -> str:  # noqa: ANN401 - values of a template
        """Join values as ``~`` does; compiled templates call this."""
        self.budget.spend(self.budget.size(*values))
        return "".join(str(_printable(value)) for value in values)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401 - Jinja's
        """Refuse what the immutable sandbox refuses, and methods that make much out of little."""
        if attr in _REFUSED_METHODS and isinstance(obj, str | int):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:  # noqa: ANN401 - Jinja's
        """Refuse at once what is unsafe; Jinja would wait for the value to be used."""
        raise SecurityError(
            f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe"
        )

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Look an item up, also for ``map(attribute=...)``; hashing walks through a nested key."""
        nested = not isinstance(argument, str | int)
        self.budget.spend(STEP_COST + (self.budget.size(argument) if nested else 0))
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Compute ``left operator right`` once its result is paid for."""
        self.budget.spend(
            STEP_COST + operation_cost.operator_cost(self.budget, operator, left, right)
        )
        return checked_number(super().call_binop(context, operator, left, right))

    def call(
        __self,  # noqa: N805 - the template's keyword arguments may be named self
        __context: Context,
        __obj: Any,  # noqa: ANN401 - Jinja's
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call a function, macro or method once its result is paid for."""
        if __obj in (__self.turn, __self.paid, __self.copied, __self.concat_text):
            return __obj(*args)
        # Jinja passes variables of loops and blocks under names that start with an underscore.
        given = [value for key, value in kwargs.items() if not key.startswith("_")]
        cost = operation_cost.call_cost(__self.budget, __obj, [*args, *given])
        __self.budget.spend(STEP_COST + cost)
        result = checked_number(super().call(__context, __obj, *args, **kwargs))
        __self.budget.spend(flat_size(result))
        return result

    def _paid_filter(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps the marks by which Jinja passes context or environment
        def paid(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - values of a template
            value, *options = _given(args, kwargs)
            cost = operation_cost.filter_cost(self.budget, name, value, options)
            self.budget.spend(STEP_COST + cost)
            result = checked_number(function(*args, **kwargs))
            self.budget.spend(flat_size(result))
            self._lazy.grow(result, [value, *options])
            return result

        return paid

    def _paid_test(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - values of a template
            cost = operation_cost.test_cost(self.budget, _given(args, kwargs))
            self.budget.spend(STEP_COST + cost)
            return function(*args, **kwargs)

        return paid

    def _to_json(
        self,
        value: Any,  # noqa: ANN401 - any JSON value
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Write JSON as chat templates want it: no escapes for HTML, none for letters."""
        text = json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
        if ensure_ascii and self.guard is not None:
            return text.replace(json.dumps(self.guard)[1:-1], self.guard)
        return text


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Leave out what Jinja itself passes to a filter or test."""
    return [v for v in (*args, *kwargs.values()) if not isinstance(v, _PASSED_BY_JINJA)]


@pass_context  # also keeps constants from being written while compiling
def _pay_for_output(context: Context, value: Any) -> Any:  # noqa: ANN401 - values of a template
    assert isinstance(context.environment, TemplateEnvironment)
    return context.environment.paid(_printable(value))


def _printable(value: Any) -> Any:  # noqa: ANN401 - values of a template
    """Refuse what prints with its address, another one in every run: ``{{ message.items }}``."""
    if isinstance(value, _DATA) or " at 0x" not in str(value):
        return value
    raise TemplateRuntimeError(f"a {type(value).__name__} cannot be printed; is a call missing?")


def _raise_exception(message: object) -> NoReturn:
    raise RaisedByTemplateError(str(message))

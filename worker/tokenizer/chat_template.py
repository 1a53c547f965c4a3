"""The chat template of a model: messages to prompt text."""

import re
from collections.abc import Collection, Mapping
from datetime import datetime
from threading import Lock
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError

from worker.errors import EngineConfigError, ModelError, TemplateError, WorkerError
from worker.gguf.wording import shown

from .control_guard import ControlGuard
from .messages import normalise_messages, normalise_tools
from .rendered_prompt import RenderedPrompt
from .template_budget import TemplateBudget, TemplateLimitError
from .template_environment import RaisedByTemplateError, TemplateEnvironment

_LONGEST_SOURCE = 1 << 16  # four times the longest known; compiling it takes a second at most
_LONGEST_REASON = 1_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OURS = frozenset({"messages", "add_generation_prompt", "bos_token", "eos_token"})


class ChatTemplate:
    """Renders conversations, always up to where the assistant is to speak.

    A conversation that ends with the assistant's message gets a new assistant turn after it.
    Templates run in Jinja's immutable sandbox with a bound on work, see ``TemplateBudget``.
    Control tokens that messages spell are guarded, see ``ControlGuard``.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None,
        eos_token: str | None,
        now: datetime,
        kwargs: Mapping[str, Any] | None = None,
        control_tokens: Collection[str] = (),
        origin: str = "tokenizer.chat_template",
        at_fault: type[WorkerError] = ModelError,
    ) -> None:
        """Compile a template.

        Args:
            source: Jinja source.
            bos_token: text of BOS; None leaves the variable undefined.
            eos_token: text of EOS; likewise.
            now: what ``strftime_now`` tells; the date of the job.
            kwargs: further variables, e.g. ``enable_thinking``; also ``tools`` or ``documents``.
            control_tokens: texts to guard in messages.
            origin: file and key, for messages.
            at_fault: the error for a template that cannot be used, by where it comes from.

        Raises:
            WorkerError: of the class ``at_fault``: no Jinja, or more than 65,536 characters.
            EngineConfigError: kwargs holds a variable that is not the user's to set.
        """
        taken = _OURS.intersection(kwargs or {})
        if taken:
            raise EngineConfigError(
                f"chat_template_kwargs: {min(taken)} is set by tokenmill; leave it out"
            )
        self._source = source
        self._variables = {
            "tools": None,
            "documents": None,
            **(kwargs or {}),
            **({} if bos_token is None else {"bos_token": bos_token}),
            **({} if eos_token is None else {"eos_token": eos_token}),
        }
        self._guard = ControlGuard(control_tokens)
        self._environment = TemplateEnvironment(now)
        self._template = _compiled(self._environment, source, origin, at_fault)
        self._lock = Lock()  # the budget under way is the environment's

    def render(self, messages: object, tools: object = None) -> RenderedPrompt:
        """Render a conversation; neither messages nor tools are changed.

        Args:
            messages: a list of mappings with ``role`` and ``content``.
            tools: a list of mappings, in place of the variable ``tools`` among the kwargs.

        Raises:
            RowError: not a conversation; TemplateError: the template refuses it, fails or does
                too much.
        """
        plain = normalise_messages(messages)
        own = {} if tools is None else {"tools": normalise_tools(tools)}
        conversation, own, guard = self._guard.guard(plain, own, [self._source, self._variables])
        with self._lock:
            self._environment.budget = TemplateBudget([conversation, own])
            self._environment.guard = guard
            return RenderedPrompt(self._rendered(conversation, own), guard)

    def _rendered(self, conversation: list[dict[str, Any]], own: Mapping[str, Any]) -> str:
        variables = {**self._variables, **own}
        try:
            return self._template.render(
                variables, messages=conversation, add_generation_prompt=True
            )
        except (RaisedByTemplateError, TemplateLimitError) as error:
            raise TemplateError(_reason("chat template", error)) from error
        except SecurityError as error:
            raise TemplateError(_reason("chat template refused, unsafe access", error)) from error
        except Exception as error:
            # A stranger's program may raise anything; whatever it is, only this row fails.
            kind = type(error).__name__
            raise TemplateError(_reason(f"chat template error: {kind}", error)) from error


def _compiled(
    environment: TemplateEnvironment, source: str, origin: str, at_fault: type[WorkerError]
) -> Template:
    if len(source) > _LONGEST_SOURCE:
        raise at_fault(
            f"{origin} has {len(source)} characters, at most {_LONGEST_SOURCE} are taken; give "
            "another template in the job settings (chat_template)"
        )
    try:
        return environment.from_string(source)
    except Exception as error:
        # Not only syntax errors: nesting too deep for Python's compiler, values out of range.
        line = getattr(error, "lineno", None)
        place = f", line {line}" if line else ""
        raise at_fault(
            f"{origin}{place} does not compile: {type(error).__name__}: {shown(str(error), 200)}; "
            "give another template in the job settings (chat_template)"
        ) from error


def _reason(what: str, error: Exception) -> str:
    """Word a failure in one line without anything that depends on the run."""
    words = " ".join(_ADDRESS.sub("", str(error)).split())
    short = words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}..."
    return f"{what}: {short}" if short else what

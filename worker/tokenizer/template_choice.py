"""Which chat template a model's rows get: one of the file's, a built-in one, or the user's."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from worker.errors import EngineConfigError, ModelError, WorkerError

from .built_in_templates import BUILT_IN_TEMPLATES
from .template_sources import DEFAULT, TOOL_USE


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """A template to compile.

    Attributes:
        source: Jinja source.
        origin: file and key, or setting, for messages.
        at_fault: the error if it cannot be used.
    """

    source: str
    origin: str
    at_fault: type[WorkerError]


def choose_templates(
    model: str, own: Mapping[str, str], given: str | None
) -> tuple[TemplateChoice | None, TemplateChoice | None]:
    """Choose the template for ordinary rows and the one for rows with tools.

    Args:
        model: the model file, for messages.
        own: the file's templates by name.
        given: Jinja source, or a name among ``own`` and the built-in ones; None takes the file's
            ``default``, and ``tool_use`` for rows with tools where the file has it.

    Returns:
        Two choices, None where there is no template.

    Raises:
        EngineConfigError: an unknown name.
    """
    if given is None:
        usual = _of_file(model, own, DEFAULT) if DEFAULT in own else None
        return usual, _of_file(model, own, TOOL_USE) if TOOL_USE in own else usual
    choice = _named(model, own, given) if is_name(given) else _given(given)
    return choice, choice


def is_name(given: str) -> bool:
    """Tell a template's name from its source: a source has Jinja's braces, or lines."""
    return "{" not in given and "\n" not in given


def _named(model: str, own: Mapping[str, str], name: str) -> TemplateChoice:
    if name in own:
        return _of_file(model, own, name)
    if name in BUILT_IN_TEMPLATES:
        return _given(BUILT_IN_TEMPLATES[name])
    near = get_close_matches(name, [*own, *BUILT_IN_TEMPLATES], n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    of_file = f"those of {model}: {', '.join(sorted(own))}" if own else f"{model} has none"
    raise EngineConfigError(
        f"chat_template: no template is named {name!r}; {hint}built-in: "
        f"{', '.join(sorted(BUILT_IN_TEMPLATES))}; {of_file}; or give Jinja source, or a path that "
        "ends in .jinja"
    )


def _of_file(model: str, own: Mapping[str, str], name: str) -> TemplateChoice:
    key = "tokenizer.chat_template" + ("" if name == DEFAULT else f".{name}")
    return TemplateChoice(own[name], f"{model}: {key}", ModelError)


def _given(source: str) -> TemplateChoice:
    return TemplateChoice(source, "chat_template of the job settings", EngineConfigError)

"""Which template a model's rows get."""

import pytest

from worker.errors import EngineConfigError, ModelError
from worker.tokenizer.built_in_templates import BUILT_IN_TEMPLATES
from worker.tokenizer.template_choice import choose_templates

OWN = {"default": "usual {{ 1 }}", "tool_use": "tools {{ 1 }}", "rag": "rag {{ 1 }}"}


def sources(own, given):
    """Sources of the template for ordinary rows and of that for rows with tools."""
    return [choice and choice.source for choice in choose_templates("m.gguf", own, given)]


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        ({}, None, [None, None]),
        (OWN, None, [OWN["default"], OWN["tool_use"]]),
        ({"default": "x {{ 1 }}"}, None, ["x {{ 1 }}"] * 2),
        ({"tool_use": "x"}, None, [None, "x"]),
        (OWN, "rag", [OWN["rag"]] * 2),
        (OWN, "chatml", [BUILT_IN_TEMPLATES["chatml"]] * 2),
        ({"chatml": "own"}, "chatml", ["own"] * 2),
        (OWN, "given {{ 1 }}", ["given {{ 1 }}"] * 2),
        (OWN, "two\nlines", ["two\nlines"] * 2),
    ],
)
def test_names_and_sources(own, given, expected):
    """The file's default and its own for tools, or what was asked for by name or source."""
    assert expected == sources(own, given)


def test_an_unknown_name():
    """The error says what was meant, perhaps, and what there is."""
    with pytest.raises(EngineConfigError, match=r"'chatm'; did you mean chatml\? built-in: .*rag"):
        choose_templates("m.gguf", OWN, "chatm")
    with pytest.raises(EngineConfigError, match=r"m\.gguf has none"):
        choose_templates("m.gguf", {}, "tool_use")


def test_whose_fault_it_is():
    """The model's own template is the model's fault, any other the settings'."""
    usual, _ = choose_templates("m.gguf", OWN, None)
    (rag, _), (given, _) = (choose_templates("m.gguf", OWN, name) for name in ("rag", "{{ 1 }}"))
    assert ("m.gguf: tokenizer.chat_template", ModelError) == (usual.origin, usual.at_fault)
    assert ("m.gguf: tokenizer.chat_template.rag", ModelError) == (rag.origin, rag.at_fault)
    assert EngineConfigError is given.at_fault

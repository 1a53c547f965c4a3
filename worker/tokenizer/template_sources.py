"""The chat templates that a model file brings."""

from gguf.constants import Keys

from worker.gguf.metadata import Metadata

DEFAULT = "default"
"""Name of the template for ordinary conversations."""
TOOL_USE = "tool_use"
"""Name of the template for conversations with tools, where a model has one of its own."""


def chat_templates(metadata: Metadata) -> dict[str, str]:
    """Give the templates of a file by name; the unnamed one is ``default``.

    Raises:
        GGUFError: a template is not text.
    """
    key = Keys.Tokenizer.CHAT_TEMPLATE
    named = {
        name.removeprefix(f"{key}."): metadata.text(name)
        for name in metadata
        if name.startswith(f"{key}.")
    }
    unnamed = metadata.text(key, None)
    return {**named, DEFAULT: unnamed} if unnamed else named

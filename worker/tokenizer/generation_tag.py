"""The ``generation`` tag of chat templates."""

from typing import ClassVar

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser


class GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's text for training; here its body just renders."""

    tags: ClassVar[set[str]] = {"generation"}  # type: ignore[misc] # an instance variable in Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to ``endgeneration``."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)

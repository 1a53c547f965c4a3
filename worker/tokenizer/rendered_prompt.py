"""A conversation as the chat template rendered it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """Rendered text in which control tokens that messages spell are told from the template's.

    Attributes:
        marked: the text; in every control token that came from a message stands the guard, so
            that it is not found.
        guard: a character that occurs nowhere else, or None when no message spells a control
            token.
    """

    marked: str
    guard: str | None = None

    @property
    def text(self) -> str:
        """The prompt as the template means it."""
        return self.marked if self.guard is None else self.marked.replace(self.guard, "")

    def unguarded(self, part: str | int) -> str | int:
        """Take the guard out of a piece of ``marked``; ids pass as they are."""
        if self.guard is None or isinstance(part, int):
            return part
        return part.replace(self.guard, "")

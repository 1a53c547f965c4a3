"""Reading an architecture's own metadata keys, with bounds."""

from pathlib import Path

from worker.errors import GGUFError
from worker.gguf import Metadata

# Larger values are damage, and would overflow sizes computed from them.
_LARGEST = 1 << 31


class KeyReader:
    """The keys of a file that start with its architecture's name.

    Attributes:
        architecture: of the file.
        path: of the file, for messages.
    """

    architecture: str
    path: Path

    def __init__(self, metadata: Metadata) -> None:
        self.architecture = metadata.text("general.architecture")
        self.path = metadata.path
        self._metadata = metadata

    def key(self, name: str) -> str:
        """The full key of a name such as ``block_count``."""
        return f"{self.architecture}.{name}"

    def positive(self, name: str) -> int:
        """An integer above 0; GGUFError when missing or out of range."""
        return self._in_range(name, self._metadata.integer(self.key(name)))

    def optional_positive(self, name: str) -> int | None:
        """The same for a key that may be missing."""
        value = self._metadata.integer(self.key(name), None)
        return None if value is None else self._in_range(name, value)

    def optional_number(self, name: str) -> float | None:
        """A finite number, None when missing."""
        return self._metadata.number(self.key(name), None)

    def optional_text(self, name: str) -> str | None:
        """A string, None when missing."""
        return self._metadata.text(self.key(name), None)

    def number_between(self, name: str, low: float, high: float) -> float:
        """A number with low < number < high; GGUFError when missing or out of range."""
        value = self._metadata.number(self.key(name))
        if not low < value < high:
            raise GGUFError(
                f"{self.path}: key {self.key(name)} is {value:g}, expected a number between "
                f"{low:g} and {high:g}; convert the model again"
            )
        return value

    def _in_range(self, name: str, value: int) -> int:
        # The number of layers may be absurd here: it is compared with the layers that are there.
        if value < 1 or (value >= _LARGEST and name != "block_count"):
            raise GGUFError(
                f"{self.path}: key {self.key(name)} is {value}, expected a number from 1 to "
                f"{_LARGEST - 1}; convert the model again"
            )
        return value

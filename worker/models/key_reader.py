"""Reading an architecture's own metadata keys, with bounds."""

from pathlib import Path

import numpy as np

from worker.errors import GGUFError, UnsupportedModelError
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

    def optional_layer_size(self, name: str, num_layers: int) -> int | None:
        """An integer above 0 that a file may give once or for each layer; None when missing.

        Raises:
            UnsupportedModelError: it differs between layers.
            GGUFError: it is out of range, or there is not one for each layer.
        """
        values = self._metadata.get(self.key(name))
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
            return self.optional_positive(name)
        self._check_length(name, len(values), num_layers)
        if len(set(values.tolist())) > 1:
            raise UnsupportedModelError(
                f"{self.path}: key {self.key(name)} differs between layers, "
                f"{values.min()} to {values.max()}; tokenmill supports layers of one size"
            )
        return self._in_range(name, int(values[0]))

    def layer_size(self, name: str, num_layers: int) -> int:
        """The same for a key that must be there."""
        value = self.optional_layer_size(name, num_layers)
        return self.positive(name) if value is None else value

    def optional_layer_flags(self, name: str, num_layers: int) -> list[bool] | None:
        """A boolean for each layer; None when the key is missing or no array of booleans."""
        values = self._metadata.get(self.key(name))
        if not isinstance(values, np.ndarray) or values.dtype != np.bool_:
            return None
        self._check_length(name, len(values), num_layers)
        return [bool(value) for value in values]

    def optional_number(self, name: str) -> float | None:
        """A finite number, None when missing."""
        return self._metadata.number(self.key(name), None)

    def optional_text(self, name: str) -> str | None:
        """A string, None when missing."""
        return self._metadata.text(self.key(name), None)

    def number_between(self, name: str, low: float, high: float) -> float:
        """A number with low < number < high; GGUFError when missing or out of range."""
        return self._between(name, self._metadata.number(self.key(name)), low, high)

    def optional_between(self, name: str, low: float, high: float) -> float | None:
        """The same for a key that may be missing."""
        value = self.optional_number(name)
        return None if value is None else self._between(name, value, low, high)

    def factor(self, name: str) -> float | None:
        """A positive number that float32 can divide by; None when missing or 0, for unused."""
        return self.optional_between(name, 1e-6, 1e6) if self.optional_number(name) else None

    def _between(self, name: str, value: float, low: float, high: float) -> float:
        if not low < value < high:
            raise GGUFError(
                f"{self.path}: key {self.key(name)} is {value:g}, expected a number between "
                f"{low:g} and {high:g}; convert the model again"
            )
        return value

    def _check_length(self, name: str, length: int, num_layers: int) -> None:
        if length != num_layers:
            raise GGUFError(
                f"{self.path}: key {self.key(name)} has {length} values, but the model has "
                f"{num_layers} layers; convert the model again"
            )

    def _in_range(self, name: str, value: int) -> int:
        # The number of layers may be absurd here: it is compared with the layers that are there.
        if value < 1 or (value >= _LARGEST and name != "block_count"):
            raise GGUFError(
                f"{self.path}: key {self.key(name)} is {value}, expected a number from 1 to "
                f"{_LARGEST - 1}; convert the model again"
            )
        return value

"""Reading an architecture's own metadata keys, with bounds."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from worker.errors import GGUFError, UnsupportedModelError
from worker.gguf import Metadata
from worker.gguf.wording import shown

# Larger values are damage, and would overflow sizes computed from them.
_LARGEST = 1 << 31


# Keys that say nothing about the computation, or nothing that tensors do not say as well.
_HARMLESS = frozenset(
    {
        "vocab_size",
        "tensor_data_layout",
        "pooling_type",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "attention.layer_norm_epsilon",
        "attention.layer_norm_rms_epsilon",
    }
)
# Values that are as good as no key.
_UNUSED: tuple[object, ...] = (0, "")
_NEUTRAL: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "attention.causal": (True,),
        "embedding_scale": (0, 1),
        "residual_scale": (0, 1),
        "logit_scale": (0, 1),
        "rope.scaling.attn_factor": (0, 1),
        "rope.scaling.yarn_attn_factor": (0, 1),
        "rope.scaling.yarn_ext_factor": (0, -1),
        "rope.scaling.yarn_beta_fast": (0, -1),
        "rope.scaling.yarn_beta_slow": (0, -1),
    }
)


class KeyReader:
    """The keys of a file that start with its architecture's name, and which of them were read.

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
        self._read: set[str] = set()

    def key(self, name: str) -> str:
        """The full key of a name such as ``block_count``."""
        return f"{self.architecture}.{name}"

    def finish(self) -> None:
        """Check that every key that says something about the computation was read.

        Raises:
            UnsupportedModelError: naming one that was not, with its value.
        """
        prefix = self.key("")
        for key in self._metadata:
            name = key.removeprefix(prefix)
            if name == key or name in _HARMLESS or key in self._read:
                continue
            if not _is_neutral(name, self._metadata[key]):
                raise UnsupportedModelError(
                    f"{self.path}: key {shown(key)} is {_shown_value(self._metadata[key])}: "
                    f"tokenmill does not compute this variant of {self.architecture}; take a "
                    "model without it"
                )

    def positive(self, name: str) -> int:
        """An integer above 0; GGUFError when missing or out of range."""
        return self._in_range(name, self._metadata.integer(self._reading(name)))

    def optional_positive(self, name: str) -> int | None:
        """The same for a key that may be missing."""
        value = self._metadata.integer(self._reading(name), None)
        return None if value is None else self._in_range(name, value)

    def optional_unless_zero(self, name: str) -> int | None:
        """An integer above 0; None when missing or 0, for unused."""
        unused = self._metadata.integer(self._reading(name), None) == 0
        return None if unused else self.optional_positive(name)

    def optional_layer_size(self, name: str, num_layers: int) -> int | None:
        """An integer above 0 that a file may give once or for each layer; None when missing.

        Raises:
            UnsupportedModelError: it differs between layers.
            GGUFError: it is out of range, or there is not one for each layer.
        """
        values = self._metadata.get(self._reading(name))
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
        values = self._metadata.get(self._reading(name))
        if not isinstance(values, np.ndarray) or values.dtype != np.bool_:
            return None
        self._check_length(name, len(values), num_layers)
        return [bool(value) for value in values]

    def optional_number(self, name: str) -> float | None:
        """A finite number, None when missing."""
        return self._metadata.number(self._reading(name), None)

    def optional_text(self, name: str) -> str | None:
        """A string, None when missing."""
        return self._metadata.text(self._reading(name), None)

    def number_between(self, name: str, low: float, high: float) -> float:
        """A number with low < number < high; GGUFError when missing or out of range."""
        return self._between(name, self._metadata.number(self._reading(name)), low, high)

    def optional_between(self, name: str, low: float, high: float) -> float | None:
        """The same for a key that may be missing."""
        value = self.optional_number(name)
        return None if value is None else self._between(name, value, low, high)

    def factor(self, name: str) -> float | None:
        """A positive number that float32 can divide by; None when missing or 0, for unused."""
        return self.optional_between(name, 1e-6, 1e6) if self.optional_number(name) else None

    def optional_flag(self, name: str) -> bool | None:
        """A boolean, None when missing."""
        return self._metadata.boolean(self._reading(name), None)

    def is_given(self, name: str) -> bool:
        """Whether the file has the key, whatever it holds."""
        return self.key(name) in self._metadata

    def ignore(self, name: str) -> None:
        """Take a key as read that says nothing about the computation here."""
        self._reading(name)

    def _reading(self, name: str) -> str:
        """The full key of a name that is being read."""
        key = self.key(name)
        self._read.add(key)
        return key

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


def _is_neutral(name: str, value: object) -> bool:
    if isinstance(value, np.ndarray):
        return not value.any()
    return value in _NEUTRAL.get(name, _UNUSED)


def _shown_value(value: object) -> str:
    """A value for a message."""
    if isinstance(value, np.ndarray):
        value = value[:8].tolist()
    return f"{value:g}" if isinstance(value, float) else shown(value)

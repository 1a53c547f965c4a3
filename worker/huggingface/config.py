"""The hyperparameters of a checkpoint, field by field."""

from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from worker.errors import CheckpointError
from worker.gguf.wording import shown

Setting = Callable[["Config"], object]
"""Gives the value of a GGUF key; None leaves the key out."""

_REQUIRED = object()


class Config:
    """The fields of ``config.json``; of one that describes several models, those of the text model.

    Attributes:
        path: of the file, for messages.
    """

    path: Path

    def __init__(self, path: Path, fields: Mapping[str, Any]) -> None:
        """Take the parsed file."""
        self.path = path
        self._fields = fields

    def get(self, name: str, default: object = None) -> object:
        """A field as it is; the default when it is missing or null."""
        value = self._fields.get(name)
        return default if value is None else value

    def text(self, name: str) -> str | None:
        """A string; None when missing."""
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(name, value, "a string")

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer from 1 to 2^31 - 1; CheckpointError when missing and without a default."""
        value = self.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31:
            return value
        raise self.wrong(name, value, "an integer from 1 to 2147483647")

    def number(self, name: str, default: float | None = None) -> float:
        """A number; CheckpointError when missing and without a default."""
        value = self.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return float(value)
        raise self.wrong(name, value, "a number")

    def mapping(self, name: str) -> "Config":
        """The fields of an object; none when missing."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return Config(self.path, value)

    def names(self, name: str, count: int) -> list[str]:
        """A string for each layer."""
        value = self.get(name)
        if (
            not isinstance(value, list)
            or len(value) != count
            or not all(isinstance(each, str) for each in value)
        ):
            raise self.wrong(name, value, f"a list of {count} strings")
        return value

    def wrong(self, name: str, value: object, expected: str) -> CheckpointError:
        """The error for a field that cannot be used."""
        found = "missing" if value is None else shown(value)
        return CheckpointError(
            f"{self.path}: field {name} is {found}, expected {expected}; take a complete "
            "checkpoint, or correct the file"
        )


def field(name: str, default: object = _REQUIRED) -> Setting:
    """The value of a field; without a default it must be there. None leaves the key out."""

    def setting(config: Config) -> object:
        value = config.get(name, None if default is _REQUIRED else default)
        if value is None and default is _REQUIRED:
            raise config.wrong(name, None, "a value")
        return value

    return setting


def constant(value: object) -> Setting:
    """A value that the architecture has in all checkpoints."""
    return lambda config: value


def head_dim(config: Config) -> int:
    """Values of an attention head."""
    heads = config.integer("num_attention_heads")
    return config.integer("head_dim", max(1, config.integer("hidden_size") // heads))

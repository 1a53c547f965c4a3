"""Errors of the worker package.

The tree::

    WorkerError
    ├── ModelError               the model cannot be used (exit code 4)
    │   ├── GGUFError            the file is not a sound GGUF file
    │   ├── CheckpointError      the folder is not a sound Hugging Face checkpoint
    │   ├── UnsupportedModelError  the file is sound, tokenmill cannot run it
    │   └── ModelSourceError     the model could not be fetched or is not the one named
    ├── EngineConfigError        settings that cannot work on this machine or model (exit code 2)
    └── RowError                 one row cannot be answered; becomes that row's ``error``
        ├── SamplingParamsError  its sampling parameters cannot be used
        ├── TemplateError        the chat template refuses it
        ├── TooLongError         it needs more tokens than there is room for
        ├── NumbersError         the model computed no finite numbers for it
        └── LostWorkersError     the workers that had it died

A message names the thing, both values and the fix, in one line.
"""

from enum import StrEnum
from typing import ClassVar


class ErrorKind(StrEnum):
    """What was wrong with a row; the values are those of the column ``error_kind``."""

    INPUT = "input"
    SAMPLING_PARAMS = "sampling_params"
    TEMPLATE = "template"
    TOO_LONG = "too_long"
    NUMBERS = "numbers"
    WORKER = "worker"


class WorkerError(Exception):
    """Base class of all errors raised by the worker package."""


class ModelError(WorkerError):
    """The model cannot be used."""


class GGUFError(ModelError):
    """The file is not a sound GGUF file; the message names file, field, found and expected."""


class CheckpointError(ModelError):
    """The folder is not a sound checkpoint; the message names file, field, found and expected."""


class UnsupportedModelError(ModelError):
    """The file is sound, but tokenmill cannot run it; the message lists what is supported."""


class ModelSourceError(ModelError):
    """A model source cannot be fetched, or is not what its hash promised."""


class EngineConfigError(WorkerError):
    """A setting cannot work with this model or on this machine."""


class RowError(WorkerError):
    """One row cannot be answered; of this class itself: what its columns hold cannot be used.

    The text becomes the row's ``error`` column, so nothing that depends on the run (paths,
    worker, time) may stand in it.
    """

    kind: ClassVar[ErrorKind] = ErrorKind.INPUT


class SamplingParamsError(RowError):
    """Sampling parameters that cannot be used; the message names the one and what is allowed."""

    kind = ErrorKind.SAMPLING_PARAMS


class TemplateError(RowError):
    """There is no chat template, or it refuses the messages, fails or does too much."""

    kind = ErrorKind.TEMPLATE


class TooLongError(RowError):
    """More tokens than the context or the KV pool has room for."""

    kind = ErrorKind.TOO_LONG


class NumbersError(RowError):
    """The model computed NaN or infinity."""

    kind = ErrorKind.NUMBERS


class LostWorkersError(RowError):
    """The workers died that had the row, and it alone, in work."""

    kind = ErrorKind.WORKER

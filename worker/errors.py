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

A message names the thing, both values and the fix, in one line.
"""


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
    """One row cannot be answered.

    The text becomes the row's ``error`` column, so nothing that depends on the run (paths,
    worker, time) may stand in it.
    """

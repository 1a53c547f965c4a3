"""Errors of the cluster package, one branch for each exit code of design section 7.

The tree::

    ClusterError
    ├── JobConfigError       usage or configuration: exit code 2
    ├── RowErrorsError       rows failed and the job was told not to accept that: exit code 3
    ├── InputError           the input dataset cannot be read: exit code 4
    └── JobStoppedError      stopped, the work done is kept: exit code 75
"""


class ClusterError(Exception):
    """Base class of all errors raised by the cluster package."""


class JobConfigError(ClusterError):
    """The job as configured cannot run: a path, a column, a setting, a folder in use."""


class RowErrorsError(ClusterError):
    """Rows ended in errors and ``fail_on_errors`` or ``max_errors`` says that this is a failure."""


class InputError(ClusterError):
    """An input file cannot be read; the message names file, what was found and the fix."""


class JobStoppedError(ClusterError):
    """The job stopped before its end; committed shards are kept."""

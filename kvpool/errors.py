"""Errors of the kvpool package.

Running out of blocks is no error: allocation answers ``False``.

The tree::

    KVPoolError
    └── PoolSizeError    the pool cannot have the size that was asked for (exit code 2)
"""


class KVPoolError(Exception):
    """Base class of all errors raised by the kvpool package."""


class PoolSizeError(KVPoolError):
    """The pool cannot have the size asked for; the message names both sizes and the setting."""

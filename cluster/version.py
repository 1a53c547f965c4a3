"""The version of tokenmill, compared between the driver and every worker before a row is done."""

from typing import Final

VERSION: Final = "0.1.0"
"""The code's own version: under ``ray job submit`` no distribution need be installed."""

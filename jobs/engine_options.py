"""Engine settings from the command line."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cluster.errors import JobConfigError
from worker.engine.config import EngineConfig

from .config_errors import describe


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """Engine settings from command-line options.

    Raises:
        JobConfigError: naming option, value and what was expected.
    """
    try:
        return EngineConfig(**options)
    except ValidationError as error:
        raise JobConfigError(describe(error, EngineConfig, "command line", ())) from error

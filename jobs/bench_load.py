"""What benches of a load of rows share: how it is computed, whether it fits, what is printed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worker.compute_config import ComputeMode
from worker.engine.config import EngineConfig
from worker.engine.engine import Engine
from worker.errors import EngineConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What computes a load, whatever its rows are.

    Attributes:
        compute: int8 or f32.
        threads: None for all cores.
    """

    compute: ComputeMode = EngineConfig().compute
    threads: int | None = None


def check_length(needed: int, engine: Engine, options: str) -> None:
    """Check that a row of so many tokens fits; `options` make it shorter.

    Raises:
        EngineConfigError: it is longer than the model's context.
    """
    if needed > engine.max_model_len:
        raise EngineConfigError(
            f"a row needs {needed} tokens, the model's context is {engine.max_model_len}: lower "
            f"{options}"
        )


def print_result(
    path: Path,
    plan: LoadPlan,
    figures: Mapping[str, Any],
    lines: Sequence[str],
    output_format: str,
) -> None:
    """Print figures as JSON, with the model's name and the plan, or what says them as text."""
    if output_format == "json":
        print(json.dumps({"model": path.name, "plan": asdict(plan), **figures}, indent=2))
    else:
        print(*lines, sep="\n")

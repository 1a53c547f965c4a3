"""What of a model goes through the dequant cache, and what that costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from worker.compute_config import ComputeConfig
from worker.dequant_cache import RING, WeightUnit
from worker.gguf import ModelFile
from worker.stages import Stages
from worker.thread_team import ThreadTeam

from .decoder import Decoder
from .projections import PlannedProjections
from .registry import load_model


@dataclass(frozen=True, slots=True)
class DequantCosts:
    """The weights of a model that are multiplied as float32 copies in one compute mode.

    Attributes:
        tensors: their names, in the order of a step.
        n_bytes: of all copies: with this much, each is made once and stays.
        least_bytes: the smallest cache that works.
        step_bytes: most bytes that a step writes with the smallest cache; experts that no token
            chose are left out of a step.
    """

    tensors: tuple[str, ...]
    n_bytes: int
    least_bytes: int
    step_bytes: int


def dequant_costs(gguf: ModelFile) -> dict[str, DequantCosts]:
    """Check a model against its file, and tell the costs in modes "int8" and "f32".

    No weights but the small ones (norms, biases) are read.

    Raises: as `load_model`.
    """
    with ThreadTeam(1) as team:
        model = load_model(gguf, ComputeConfig(mode="plan"), team=team, stages=Stages())
    assert isinstance(model, Decoder)
    projections = model.projections
    assert isinstance(projections, PlannedProjections)
    plans = {"int8": projections.int8_plan, "f32": projections.f32_plan}
    return {mode: _costs(plan.units) for mode, plan in plans.items()}


def _costs(units: Sequence[WeightUnit]) -> DequantCosts:
    names = (source.name for unit in units for matrix in unit.matrices for source in matrix.sources)
    total = sum(unit.n_bytes for unit in units)
    least = min(total, RING * max((unit.n_bytes for unit in units), default=0))
    held = total if least == total else 0
    return DequantCosts(tuple(dict.fromkeys(names)), total, least, total - held)

"""Where a step's time and memory go: named stages, recorded when profiling is on.

When it is off, entering a stage costs about a tenth of a microsecond and records nothing.
"""

import time
import tracemalloc
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Names of the stages a model and the engine report, in the order of a step.
STAGE_NAMES = (
    "embedding",
    "norm",
    "attn_qkv",
    "delta_inputs",
    "convolution",
    "delta_rule",
    "rope_kv_write",
    "attention",
    "quantise",
    "attn_output",
    "delta_output",
    "router",
    "ffn_gate_up",
    "ffn_up",
    "activation",
    "ffn_down",
    "lm_head",
    "dequantise",
    "sampling",
)


@dataclass(slots=True)
class StageRecord:
    """What was seen of one stage since the last reset.

    Attributes:
        name: of the stage.
        calls: times it was entered.
        seconds: spent in it, stages entered from within it taken off.
        allocated_bytes: memory taken at the peak of a call beyond what was held when it began,
            the largest over all calls; None unless allocations are traced.
        dtypes: of the arrays it gave out.
        contiguous: whether all of them were C-contiguous.
    """

    name: str
    calls: int = 0
    seconds: float = 0.0
    allocated_bytes: int | None = None
    dtypes: set[str] = field(default_factory=set)
    contiguous: bool = True


class Stage:
    """One entry into a stage, used as a context manager; this one records nothing."""

    __slots__ = ()

    def output(self, array: NDArray[Any]) -> None:
        """Say which array the stage gave out."""

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


_NOTHING = Stage()


class Stages:
    """Hands out stages; records them only while `recording`.

    Entered from one thread (the one that runs the engine), nested as deeply as needed.

    Attributes:
        recording: whether stages are timed.
    """

    recording: bool

    def __init__(self) -> None:
        self.recording = False
        self._records: dict[str, StageRecord] = {}
        self._open: list[_RecordedStage] = []

    def stage(self, name: str) -> Stage:
        """A context manager around the work of stage `name`."""
        if not self.recording:
            return _NOTHING
        assert name in STAGE_NAMES, name
        return _RecordedStage(self._records.setdefault(name, StageRecord(name)), self._open)

    def add(self, name: str, seconds: float) -> None:
        """Record an entry that was timed elsewhere; call it only while recording."""
        assert name in STAGE_NAMES, name
        record = self._records.setdefault(name, StageRecord(name))
        record.calls += 1
        record.seconds += seconds

    def start(self) -> None:
        """Forget what was recorded and record from now on.

        Allocations are recorded as well if `tracemalloc` is tracing; that slows Python down, so
        times and allocations are best taken in two runs.
        """
        self._records.clear()
        self.recording = True

    def stop(self) -> list[StageRecord]:
        """Stop recording and give what was seen, in the order of a step."""
        self.recording = False
        return [self._records[name] for name in STAGE_NAMES if name in self._records]


class _RecordedStage(Stage):
    """An entry that is timed; the time of stages within it is taken off."""

    __slots__ = ("_begin", "_held", "_inner", "_open", "_record")

    def __init__(self, record: StageRecord, open_stages: "list[_RecordedStage]") -> None:
        self._record = record
        self._open = open_stages
        self._inner = 0.0

    def output(self, array: NDArray[Any]) -> None:
        self._record.dtypes.add(np.dtype(array.dtype).name)
        self._record.contiguous &= array.flags.c_contiguous

    def __enter__(self) -> "_RecordedStage":
        self._open.append(self)
        self._held = -1
        if tracemalloc.is_tracing():
            self._held = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        elapsed = time.perf_counter() - self._begin
        self._open.pop()
        if self._open:
            self._open[-1]._inner += elapsed
        self._record.calls += 1
        self._record.seconds += elapsed - self._inner
        if self._held >= 0:
            taken = tracemalloc.get_traced_memory()[1] - self._held
            self._record.allocated_bytes = max(self._record.allocated_bytes or 0, taken)

"""The worker: a Ray actor around one engine. The class itself knows nothing of Ray."""

import asyncio
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from kvpool.available_memory import available_memory
from kvpool.errors import KVPoolError
from worker.engine.config import EngineConfig
from worker.engine.sampling_params import SamplingParams
from worker.errors import ModelError, WorkerError
from worker.model_source import fetch_model
from worker.received_model import ModelSender, receive_model, received_model
from worker.start_up_life import StartUpLife

from .engine_loop import EngineLoop
from .memory_guard import MemoryGuard
from .optional_column import OptionalColumn
from .peak_memory import peak_rss_bytes
from .rows import requests_of
from .shard_table import shard_table
from .software import own_software


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What every worker of a job is told.

    Attributes:
        model: model source, resolved on the worker's own machine.
        sha256: what the model's hash must be: the driver's.
        engine: engine settings, threads set.
        sampling: the job's sampling parameters.
        max_n: most completions that a row may ask for.
        optional: result columns that were asked for.
        memory_reserve_bytes: memory to be left alone; None takes a share of what there is.
    """

    model: str
    sha256: str
    engine: EngineConfig
    sampling: SamplingParams
    max_n: int
    optional: frozenset[OptionalColumn]
    memory_reserve_bytes: int | None


class Worker:
    """One engine, fed with shards.

    Its methods are coroutines so that a report can be had while shards are in work; the engine
    runs in a thread of its own. A row's failure is data; an exception means that the worker is
    of no more use.

    Args:
        worker_id: its name in the statistics.
    """

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._spec: WorkerSpec | None = None
        self._loop: EngineLoop | None = None
        self._start_up = StartUpLife()

    async def identify(self) -> dict[str, Any]:
        """Say where and what this worker is, before anything version-dependent is exchanged."""
        return {
            "node": socket.gethostname(),
            "pid": os.getpid(),
            **own_software(),
        }

    async def load(self, spec: WorkerSpec, sender: ModelSender | None = None) -> dict[str, Any]:
        """Load the model: one that the driver sent before, or from its source.

        Args:
            spec: what to load.
            sender: from whom to take the model, once its source has failed.

        Returns:
            ``lacks_model``, why it cannot be had from its source, when there is no sender. Else
            ``numerics``, ``load_s``, ``kv_pool`` (what fits into it, as text), ``reserved_bytes``
            (of KV pool and dequant cache, which are filled as rows come) and ``available_bytes``
            (of the node now); or ``error`` and ``error_class`` when the model or the settings are
            at fault, which trying again would not change.
        """
        started = monotonic()
        try:
            path = await asyncio.to_thread(_find_model, spec, sender)
            if isinstance(path, str):
                return {"lacks_model": path}
            loaded = await asyncio.to_thread(self._load, spec, path)
        except (WorkerError, KVPoolError) as error:
            return {"error": str(error), "error_class": type(error).__name__}
        return loaded | {"load_s": monotonic() - started}

    async def run_shard(self, first_row: int, num_rows: int, payload: bytes, attempt: int) -> bytes:
        """Complete a shard's rows.

        Args:
            first_row: row id of the first row.
            num_rows: how many rows.
            payload: their requests as an Arrow IPC stream.
            attempt: which attempt at this shard this is, from 1.

        Returns:
            The shard's table as an Arrow IPC stream.
        """
        assert self._loop is not None, "load comes first"
        assert self._spec is not None, "load comes first"
        rows = requests_of(payload, first_row, self._spec.sampling, self._spec.max_n)
        completions = await asyncio.wrap_future(self._loop.submit(rows, num_rows))
        table = shard_table(
            completions,
            range(first_row, first_row + num_rows),
            worker_id=self._worker_id,
            attempt=attempt,
            optional=self._spec.optional,
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    async def report(self) -> dict[str, Any]:
        """Return ``samples`` and ``notes`` since the last report, ``totals`` so far and ``life``.

        Life grows as long as something gets done: signs of it while the model loads, the engine's
        steps from then on. ``arrived`` is what has come of a model that is being fetched, in bytes.
        """
        if self._loop is None:
            life = await asyncio.to_thread(self._start_up.look)
            arrived = self._start_up.arrived
            return {"samples": [], "notes": [], "totals": {}, "life": life, "arrived": arrived}
        samples, totals = self._loop.report()
        for sample in samples:
            sample["worker_id"] = self._worker_id
        totals["peak_rss_bytes"] = peak_rss_bytes()
        return {
            "samples": samples,
            "notes": self._loop.take_notes(),
            "totals": totals,
            "life": totals["steps"],
            "arrived": 0,
        }

    def _load(self, spec: WorkerSpec, path: Path) -> dict[str, Any]:
        # Imported here: the engine compiles kernels, and `identify` must answer at once.
        from worker.engine.engine import Engine

        engine = Engine.from_gguf(path, spec.engine)
        self._spec = spec
        guard = MemoryGuard(spec.engine.max_num_seqs, spec.memory_reserve_bytes)
        self._loop = EngineLoop(engine, guard)
        kv_bytes = engine.stats.snapshot().kv_bytes_total
        return {
            "numerics": engine.numerics,
            "kv_pool": str(engine.kv_capacity),
            "reserved_bytes": kv_bytes + engine.model.dequant_cache.stats().reserved_bytes,
            "available_bytes": available_memory(),
        }


def _find_model(spec: WorkerSpec, sender: ModelSender | None) -> Path | str:
    """Give the model's path on this machine, or why it cannot be had from its source.

    Raises:
        WorkerError: the sender fails, or the hash cannot be one.
    """
    if sender is not None:
        return receive_model(spec.sha256, sender)
    try:
        return received_model(spec.sha256) or fetch_model(spec.model, sha256=spec.sha256)
    except ModelError as error:
        return str(error)

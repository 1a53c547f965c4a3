"""What the driver knows of one worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .statistics import WORKERS_SCHEMA
from .summary import WorkerSummary

_TELL_EVERY_S: Final = 30.0


@dataclass(slots=True)
class WorkerRecord:
    """One worker, alive or lost.

    Attributes:
        worker_id: its name.
        threads: its threads.
        identity: what it said of itself.
        numerics: its numerics identity; None until its model is loaded.
        load_s: seconds to load the model.
        reserved_bytes: what its KV pool and dequant cache will take.
        available_bytes: memory left on its node when it was loaded.
        life: how much it had done by its newest sign of life: signs of progress while it loads,
            then engine steps; None before the first.
        alive_at: when that had last grown, or it got something to do, by the driver's clock.
        arrived: bytes of an unfinished model on its node.
        fetched_at: when that had last changed, by the driver's clock.
        arrival_told_at: when the user was last told of it.
        totals: its newest counters; those of a lost worker are the last that came.
        shards, rows, row_errors: committed from it.
        loss_reason: why it was lost; None for a living one.
        joined_late: whether it was started for a node that joined the running job.
    """

    worker_id: str
    threads: int
    identity: dict[str, Any] = field(default_factory=dict)
    numerics: str | None = None
    load_s: float = 0.0
    reserved_bytes: int = 0
    available_bytes: int = 0
    life: float | None = None
    alive_at: float = 0.0
    arrived: int = 0
    fetched_at: float = 0.0
    arrival_told_at: float = 0.0
    totals: dict[str, Any] = field(default_factory=dict)
    shards: int = 0
    rows: int = 0
    row_errors: int = 0
    loss_reason: str | None = None
    joined_late: bool = False

    @property
    def node(self) -> str:
        """Host name of its machine."""
        return str(self.identity.get("node", "a node that never answered"))

    @property
    def is_loaded(self) -> bool:
        """Whether it is alive and has its model."""
        return self.numerics is not None and self.loss_reason is None

    def show_life(self, life: float, now: float) -> None:
        """Take note of a sign of life."""
        if life != self.life:
            self.life, self.alive_at = life, now

    def show_arrival(self, arrived: int, now: float) -> bool:
        """Take note of how much of a model has come to its node; whether it is time to tell."""
        if arrived == self.arrived:
            return False
        if arrived < self.arrived or not self.arrival_told_at:  # it begins, or another file does
            self.arrival_told_at = now
        self.arrived, self.fetched_at = arrived, now
        is_due = now - self.arrival_told_at > _TELL_EVERY_S
        self.arrival_told_at = now if is_due else self.arrival_told_at
        return is_due

    def total(self, name: str) -> int:
        """Return one of its counters, 0 before the first report."""
        return int(self.totals[name]) if self.totals else 0

    def as_row(self) -> Mapping[str, Any]:
        """Return its row of ``workers.parquet``, without counters if it never reported."""
        own: dict[str, Any] = {
            "worker_id": self.worker_id,
            "node": self.identity.get("node"),
            "pid": self.identity.get("pid"),
            "lost": self.loss_reason is not None,
            "loss_reason": self.loss_reason,
            "threads": self.threads,
            "numerics": self.numerics,
            "tokenmill_version": self.identity.get("tokenmill"),
            "load_s": self.load_s,
            "shards": self.shards,
            "rows": self.rows,
            "row_errors": self.row_errors,
        }
        if not self.totals:
            return own
        return own | {name: self.totals[name] for name in WORKERS_SCHEMA.names if name not in own}

    def summary(self) -> WorkerSummary:
        """Return what the job's summary says of it."""
        ready_s = float(self.totals["elapsed_s"]) if self.totals else 0.0
        prompt, generated = self.total("prefill_tokens"), self.total("decode_tokens")
        hits, misses = self.total("dequant_hits"), self.total("dequant_misses")
        return WorkerSummary(
            worker_id=self.worker_id,
            rows=self.rows,
            prompt_tokens=prompt,
            generated_tokens=generated,
            prompt_tokens_per_s=prompt / ready_s if ready_s else 0.0,
            generated_tokens_per_s=generated / ready_s if ready_s else 0.0,
            peak_rss_bytes=self.total("peak_rss_bytes"),
            preemptions=self.total("preemptions"),
            recomputed_tokens=self.total("recomputed_tokens"),
            preempted_hits=self.total("preempted_hits"),
            prefix_cache_queries=self.total("prefix_cache_queries"),
            prefix_cache_hits=self.total("prefix_cache_hits"),
            deduplicated=self.total("deduplicated"),
            kv_blocks_peak=self.total("kv_blocks_peak"),
            kv_blocks_total=self.total("kv_blocks_total"),
            dequant_hit_rate=hits / (hits + misses) if hits + misses else None,
            dequant_bytes_peak=self.total("dequant_bytes_peak"),
            lost=self.loss_reason is not None,
        )

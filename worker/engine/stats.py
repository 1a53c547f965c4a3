"""Engine statistics: counters that grow, and a look at everything at one moment."""

from dataclasses import asdict, dataclass

from kvpool import KVPool
from worker.kernels.code_cache import CODE_CACHE
from worker.models.model import Model

from .completion import Completion
from .scheduler import ScheduledChunk, Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsSnapshot:
    """The engine at one moment. Counters run from its start and only grow.

    Attributes:
        steps: steps that ran the model.
        step_s: seconds in those steps, scheduler and sampler included.
        requests: requests taken.
        completions: completions given, errors among them.
        errors: completions that are errors.
        prefill_tokens: prompt tokens computed, each counted once.
        decode_tokens: tokens generated that count.
        recomputed_tokens: tokens computed again after a preemption.
        preemptions: times a sequence gave up its blocks for an older one.
        prefix_cache_queries: prompt tokens of the sequences that were admitted.
        prefix_cache_hits: those of them whose K/V were there already.
        preempted_hits: tokens of sequences that came back after a preemption whose K/V were still
            there; they count neither as prefix cache hits nor as recomputed.
        prefix_cache_evictions: KV blocks with a findable prefix whose memory was needed.
        deduplicated: rows answered with what an equal row computed.
        running: sequences that hold KV blocks now.
        waiting: sequences that wait for a place or for blocks now.
        kv_blocks_used: KV blocks held now, over all layer groups.
        kv_blocks_idle: KV blocks held by nobody in which a prefix can be found.
        kv_blocks_total: KV blocks there are.
        kv_blocks_peak: most KV blocks ever held.
        kv_bytes_peak: bytes of those.
        kv_bytes_total: bytes of all KV blocks.
        dequant_hits: weights found in the dequant cache.
        dequant_misses: weights dequantised.
        dequant_evictions: weights that had to make room.
        dequant_bytes: bytes of dequantised weights held now.
        dequant_bytes_peak: most bytes ever held.
        kernels_compiled: kernels that this process compiled, because no other had before.
    """

    steps: int
    step_s: float
    requests: int
    completions: int
    errors: int
    prefill_tokens: int
    decode_tokens: int
    recomputed_tokens: int
    preemptions: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    preempted_hits: int
    prefix_cache_evictions: int
    deduplicated: int
    running: int
    waiting: int
    kv_blocks_used: int
    kv_blocks_idle: int
    kv_blocks_total: int
    kv_blocks_peak: int
    kv_bytes_peak: int
    kv_bytes_total: int
    dequant_hits: int
    dequant_misses: int
    dequant_evictions: int
    dequant_bytes: int
    dequant_bytes_peak: int
    kernels_compiled: int

    def as_dict(self) -> dict[str, int | float]:
        """Name to value in the order above, a row of a statistics table."""
        return asdict(self)


class EngineStats:
    """Counts what the engine does; ``snapshot`` adds what scheduler, pool and model know."""

    def __init__(self, scheduler: Scheduler, pool: KVPool, model: Model) -> None:
        self.steps = 0
        self.step_s = 0.0
        self.requests = 0
        self.completions = 0
        self.errors = 0
        self.prefill_tokens = 0
        self.decode_tokens = 0
        self.recomputed_tokens = 0
        self.deduplicated = 0
        self._scheduler = scheduler
        self._pool = pool
        self._model = model

    def count_chunk(self, chunk: ScheduledChunk) -> None:
        """Count a chunk's tokens before the sequence moves on."""
        sequence = chunk.sequence
        first = sequence.num_computed_tokens
        end = first + chunk.num_tokens
        fresh = max(first, sequence.num_known_tokens)
        self.recomputed_tokens += min(end, fresh) - first
        self.prefill_tokens += max(0, min(end, len(sequence.prompt_token_ids)) - fresh)

    def count_completion(self, completion: Completion) -> None:
        """Count an answer."""
        self.completions += 1
        self.errors += completion.error is not None

    def snapshot(self) -> StatsSnapshot:
        """Everything at this moment."""
        pool, cache = self._pool.usage, self._model.dequant_cache.stats()
        return StatsSnapshot(
            steps=self.steps,
            step_s=self.step_s,
            requests=self.requests,
            completions=self.completions,
            errors=self.errors,
            prefill_tokens=self.prefill_tokens,
            decode_tokens=self.decode_tokens,
            recomputed_tokens=self.recomputed_tokens,
            preemptions=self._scheduler.num_preemptions,
            prefix_cache_queries=self._scheduler.prefix_queries,
            prefix_cache_hits=self._scheduler.prefix_hits,
            preempted_hits=self._scheduler.preempted_hits,
            prefix_cache_evictions=pool.evictions,
            deduplicated=self.deduplicated,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            kv_blocks_used=pool.used,
            kv_blocks_idle=pool.idle,
            kv_blocks_total=pool.total,
            kv_blocks_peak=pool.peak,
            kv_bytes_peak=pool.peak_bytes,
            kv_bytes_total=pool.total_bytes,
            dequant_hits=cache.hits,
            dequant_misses=cache.misses,
            dequant_evictions=cache.evictions,
            dequant_bytes=cache.n_bytes,
            dequant_bytes_peak=cache.peak_bytes,
            kernels_compiled=CODE_CACHE.compiled,
        )

"""What a finished job has to say."""

from collections.abc import Mapping
from dataclasses import dataclass

from .errors import RowErrorsError


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSummary:
    """One worker's share.

    Attributes:
        worker_id: its name in the statistics.
        rows: rows committed from it.
        prompt_tokens: prompt tokens computed.
        generated_tokens: tokens generated.
        prompt_tokens_per_s, generated_tokens_per_s: over the time it was ready for work.
        peak_rss_bytes: most memory its process held.
        preemptions: times a row gave up its KV blocks for an older one.
        recomputed_tokens: tokens computed again after that.
        preempted_hits: tokens that were not, since their keys and values were still there.
        prefix_cache_queries, prefix_cache_hits: prompt tokens of admitted rows, and those of them
            whose keys and values were there already.
        deduplicated: rows answered with what an equal row computed.
        kv_blocks_peak, kv_blocks_total: most KV blocks held, and how many there are.
        dequant_hit_rate: share of weight look-ups found in the dequant cache; None without any.
        dequant_bytes_peak: most bytes of dequantised weights held.
        lost: whether it died before the job's end.
    """

    worker_id: str
    rows: int
    prompt_tokens: int
    generated_tokens: int
    prompt_tokens_per_s: float
    generated_tokens_per_s: float
    peak_rss_bytes: int
    preemptions: int
    recomputed_tokens: int
    preempted_hits: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    deduplicated: int
    kv_blocks_peak: int
    kv_blocks_total: int
    dequant_hit_rate: float | None
    dequant_bytes_peak: int
    lost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """The whole job.

    Attributes:
        output: the run directory.
        num_rows: rows written.
        rows_before: those of them that earlier drivers of the run had committed.
        errors: those of them with an error, by kind.
        num_parts: output files.
        generated_tokens: generated tokens of all rows.
        elapsed_s: seconds from the first dispatch to the last part, of this driver.
        ttft_p50_s, ttft_p90_s, ttft_p99_s: time from a row's arrival in its engine to its first
            token, within 2 %; None without any token.
        peak_rss_bytes: most memory that the driver's process held.
        checksum: over row ids and generated tokens; equal runs have equal ones.
        workers: all there were, the lost ones included.
    """

    output: str
    num_rows: int
    rows_before: int
    errors: Mapping[str, int]
    num_parts: int
    generated_tokens: int
    elapsed_s: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    peak_rss_bytes: int
    checksum: str
    workers: tuple[WorkerSummary, ...]

    @property
    def num_errors(self) -> int:
        """Rows with an error."""
        return sum(self.errors.values())


class FinishedWithErrors(RowErrorsError):  # noqa: N818 - the job did finish
    """All rows are done and written, some failed, and ``fail_on_errors`` is set.

    Attributes:
        summary: of the finished job.
    """

    def __init__(self, message: str, summary: JobSummary) -> None:
        super().__init__(message)
        self.summary = summary

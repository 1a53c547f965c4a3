"""Settings of the distributed job."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from .optional_column import OptionalColumn


class ClusterConfig(BaseModel):
    """How the work is spread, committed and written.

    Nothing here changes a completion; max_n decides which rows get one at all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    workers: int | None = Field(
        default=None,
        ge=1,
        description="Workers, each with its own copy of the KV pool. Default: one for each machine "
        "of a cluster, one embedded.",
    )
    shard_rows: int = Field(
        default=16,
        ge=1,
        description="Most rows sent to a worker and committed at a time. Small datasets get "
        "smaller shards. More rows: less overhead, more to redo when a worker is lost.",
    )
    shard_bytes: int = Field(
        default=1 << 20,
        ge=1,
        description="Bytes of prompts and messages at which a shard ends, whatever its rows.",
    )
    part_rows: int = Field(
        default=10_000,
        ge=1,
        description="Most rows of an output file part-NNNNN.parquet.",
    )
    part_bytes: int = Field(
        default=512 << 20,
        ge=1,
        description="About how many bytes of input columns an output file carries at most.",
    )
    shards_in_flight: int = Field(
        default=2,
        ge=2,
        description="Fewest shards a worker holds, so that its batch refills across shard borders.",
    )
    memory_reserve_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Memory of a node that its workers leave alone. With less than this available "
        "a worker takes no further rows into its batch, with less than half of it it preempts the "
        "newest. Default: a twentieth of the memory (a container's limit counts), at most 1 GiB.",
    )
    max_attempts: int = Field(
        default=3,
        ge=1,
        description="How often a row may lose its worker while it is the only one in work before "
        "it becomes a row error. Shards that were lost twice are tried alone and cut in halves to "
        "find it.",
    )
    max_worker_restarts: int = Field(
        default=10,
        ge=0,
        description="How many workers lost one after the other, without a shard committed between, "
        "are replaced before the job goes on with those left.",
    )
    stall_timeout_s: float = Field(
        default=300.0,
        gt=0,
        description="Seconds without a step of the engine, or without progress while the model "
        "loads, after which a worker is taken for hung and replaced.",
    )
    no_worker_timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds that a running job waits for a worker when none is left; then it "
        "stops, and the same command goes on.",
    )
    start_timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds to wait for the first worker to load its model, from the moment a "
        "model that is fetched has come; workers that are not there a tenth of it after the start "
        "join while the job runs.",
    )
    max_errors: int | None = Field(
        default=None, ge=0, description="End the job once more rows than this have failed."
    )
    fail_on_errors: bool = Field(
        default=False, description="Exit 3 after all rows are done if any of them failed."
    )
    output_prefix: str = Field(
        default="", description="Put before the name of every result column."
    )
    max_n: int | None = Field(
        default=None,
        ge=1,
        description="Most completions of a row (n of its sampling parameters); a row that asks for "
        "more is a row error. Above 1, a column completions lists all of a row's, each with text, "
        "finish_reason and num_generated_tokens; generated_text is the first. Default: "
        "sampling.n.",
    )
    output_columns: frozenset[Annotated[OptionalColumn, Field(strict=False)]] = Field(
        default=frozenset(),
        strict=False,  # YAML has lists and names
        description="Result columns to write besides the usual ones: prompt_tokens, "
        "generated_tokens, logprobs, completions. Completions come by themselves when max_n is "
        "above 1. Logprobs come by themselves when sampling.logprobs is set; "
        "otherwise the column has the sampled token alone, or what the row asks for. A row that "
        "asks for logprobs when there is no such column is a row error.",
    )
